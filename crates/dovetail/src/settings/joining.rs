//! The settings of a server of `--join`: the list, and which one of it this server is.

use std::net::SocketAddr;
use std::path::PathBuf;

use cluster_io::quorum::{Membership, QuorumPlace, state_folder};

use crate::settings::SettingError;
use crate::settings::serve::Lookup;

/// How far above the port of RESP the peers' port is, as in Redis Cluster.
const PEER_PORT_ABOVE: u16 = 10_000;

/// A quorum, and this server's part of it.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) place: QuorumPlace,
    /// The index of this server, and its folder; none for one that is not in the list.
    own: Option<(usize, PathBuf)>,
}

/// Parses `--join` and its companions; none without it.
pub(super) fn joining(lookup: &Lookup<'_>) -> Result<Option<Joining>, SettingError> {
    let text = |key| lookup.path(key).map(|path| path.display().to_string());
    let refuse = |key: &str, reason: String| SettingError { place: lookup.place(key), reason };
    let Some(list) = text("join") else { return Ok(None) };
    let Some(name) = lookup.text("cluster") else {
        return Err(refuse("join", "needs a name for the cluster; give --cluster NAME".to_owned()));
    };
    let place = QuorumPlace::new(&name, &list).map_err(|error| {
        let is_name = matches!(error, cluster_io::quorum::PlaceError::Name { .. });
        refuse(if is_name { "cluster" } else { "join" }, error.to_string())
    })?;
    let place = QuorumPlace { key_file: lookup.path("cluster-key"), ..place };
    let own = match text("join-as") {
        Some(member) => {
            let own = place.position(&member).ok_or_else(|| {
                let all = place.members.join(", ");
                refuse("join-as", format!("is not in --join: write one of {all}"))
            })?;
            Some(own)
        }
        None => match place.members_here()[..] {
            [] if place.unknown_members().is_empty() => None,
            [] => {
                let names = place.unknown_members().join(", ");
                let reason = format!(
                    "none is this machine's, and {names} has no address: mend the name, or write \
                     --join-as if that is this server"
                );
                return Err(refuse("join", reason));
            }
            [own] => Some(own),
            [..] => {
                let here = place.members_here();
                let names: Vec<&str> = here.iter().map(|at| place.members[*at].as_str()).collect();
                let reason = format!(
                    "{} are all this machine's: write --join-as with the one of this server",
                    names.join(", ")
                );
                return Err(refuse("join", reason));
            }
        },
    };
    let Some(own) = own else { return Ok(Some(Joining { place, own: None })) };
    let member = place.members[own].replace([':', '[', ']'], "_");
    let by_default = || Some(state_folder()?.join(&place.name).join(member));
    let folder = lookup.path("cluster-dir").or_else(by_default).ok_or_else(|| {
        let reason = "neither STATE_DIRECTORY, XDG_STATE_HOME nor HOME is set: give a directory";
        refuse("cluster-dir", reason.to_owned())
    })?;
    let place = QuorumPlace { own: Some(own), ..place };
    Ok(Some(Joining { place, own: Some((own, folder)) }))
}

/// The default of `--peer`: this server's host in the list, and a port above that of RESP.
pub(super) fn peer(lookup: &Lookup<'_>, joining: Option<&Joining>) -> Option<SocketAddr> {
    let (own, _) = joining?.own.as_ref()?;
    let mut address = joining?.place.listen(*own)?;
    let resp = lookup.address("resp").or_else(|| lookup.address("tls-resp"));
    address.set_port(resp.map_or(6379, |resp| resp.port()).checked_add(PEER_PORT_ABOVE)?);
    Some(address)
}

impl Joining {
    /// This server's host in the list.
    pub(super) fn own_host(&self) -> Option<String> {
        let (own, _) = self.own.as_ref()?;
        let (host, _) = self.place.members.get(*own)?.rsplit_once(':')?;
        Some(host.trim_matches(['[', ']']).to_owned())
    }

    /// This server's membership, if it is in the list.
    pub(super) fn into_membership(self) -> Option<Membership> {
        let (own, folder) = self.own?;
        Some(Membership { place: self.place, own, folder })
    }
}
