//! Chooses the server and the protocol of `dovetail cli`: from its arguments, else from the
//! server's settings.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use client::{TagKey, Target};
use host::small_file;
use migrate::{Address, Place, TlsFiles};

use super::CliArgs;
use super::session::Way;
use crate::failure::Failure;
use crate::flags;
use crate::machine::Machine;
use crate::settings::{Layered, Value};

/// The usual address of a native port.
const NATIVE_TARGET: &str = "native://127.0.0.1:7379";

/// The server and protocol from the arguments, else from the settings.
pub fn choose(args: &CliArgs) -> Result<Way, Failure> {
    match &args.target {
        Some(text) if text.starts_with("native:") || text.starts_with("shm:") => {
            native(text, args.native_key_file.as_deref())
        }
        Some(text) => resp(text, args).map(Way::Resp),
        None => by_settings(args),
    }
}

fn usage(reason: impl std::fmt::Display) -> Failure {
    Failure::Usage(format!("cli: {reason}"))
}

fn native(text: &str, key_file: Option<&Path>) -> Result<Way, Failure> {
    let target = text.parse::<Target>().map_err(|error| usage(format!("--target: {error}")))?;
    Ok(Way::Native(target, key_file.map(read_key).transpose()?))
}

fn read_key(path: &Path) -> Result<TagKey, Failure> {
    let failed = |reason: String| usage(format!("--native-key-file {}: {reason}", path.display()));
    let text = small_file::read_text(path, small_file::SETTINGS_MAX_BYTES)
        .map_err(|error| failed(error.to_string()))?;
    TagKey::from_hex(&text).map_err(|error| failed(error.to_string()))
}

fn resp(text: &str, args: &CliArgs) -> Result<Place, Failure> {
    let wrong = |reason: &str| {
        let forms = "write HOST:PORT, redis://HOST:PORT, native://HOST:PORT or shm:PATH";
        usage(format!("--target {}: {reason}; {forms}", without_login(text)))
    };
    let url = match text.split_once("://") {
        None => format!("redis://{text}"),
        Some(("resp", rest)) => format!("redis://{rest}"),
        Some(_) => text.to_owned(),
    };
    match url.parse::<Address>() {
        Ok(Address::Redis(place)) => Ok(with_files(place, args, None)),
        Ok(_) => Err(wrong("it does not speak RESP")),
        Err(error) => Err(wrong(&error.to_string())),
    }
}

/// A target in a form that is safe for messages.
fn without_login(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://{place}"),
        (None, Some((_, place))) => place.to_owned(),
        _ => text.to_owned(),
    }
}

/// The files for TLS, if the address uses TLS.
fn with_files(mut place: Place, args: &CliArgs, authority: Option<PathBuf>) -> Place {
    place.tls = place.tls.map(|_| TlsFiles {
        authority: args.tls_ca.clone().or(authority),
        certificate: args.tls_cert.clone(),
        key: args.tls_key.clone(),
    });
    place
}

/// The connection of a client to the server that these settings start.
fn by_settings(args: &CliArgs) -> Result<Way, Failure> {
    let explicit =
        args.config.clone().or_else(|| std::env::var_os("DOVETAIL_CONFIG").map(PathBuf::from));
    let gathered = flags::gather_with(explicit, &BTreeMap::new(), &Machine::detect())?;
    let settings = Known(&gathered.settings);
    if args.native {
        let target = match settings.address("native") {
            Some(address) => format!("native://{}", reachable(address)),
            None => NATIVE_TARGET.to_owned(),
        };
        let key_file = args.native_key_file.clone().or_else(|| settings.path("native-key-file"));
        return native(&target, key_file.as_deref());
    }
    let (address, tls) = match (settings.address("resp"), settings.address("tls-resp")) {
        (Some(address), _) => (address, None),
        (None, Some(address)) => (address, Some(TlsFiles::default())),
        (None, None) => {
            return Err(usage("the settings have no --resp and no --tls-resp; give --target"));
        }
    };
    let address = reachable(address);
    let place = Place {
        host: address.ip().to_string(),
        port: address.port(),
        user: String::new(),
        password: settings.text("requirepass"),
        database: 0,
        tls,
    };
    Ok(Way::Resp(with_files(place, args, settings.path("tls-ca"))))
}

/// The address by which a client on this machine reaches a server bound to `address`.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// The relevant settings.
struct Known<'a>(&'a [Layered]);

impl Known<'_> {
    fn value(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|layered| layered.setting.key == key).map(|layered| &layered.value)
    }

    fn address(&self, key: &str) -> Option<SocketAddr> {
        match self.value(key) {
            Some(Value::Address(address)) => Some(*address),
            _ => None,
        }
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        match self.value(key) {
            Some(Value::Path(path)) => Some(PathBuf::from(path)),
            _ => None,
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.value(key) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }
}
