//! Attacks on logins and users, and by clients that receive pushed messages: tracking, MONITOR,
//! SUBSCRIBE.

use anyhow::Result;

use super::{KNOWN, LOCKED, Shape};
use crate::attack::door::Door;
use crate::attack::pump::Reading;
use crate::attack::script::{Script, command, commands};
use crate::attack::target::Target;

pub const SHAPES: &[Shape] = &[
    Shape::new("auth-loop", Door::Resp, "failed logins as fast as they are answered", |it| {
        let lines = (0..100).map(|at| format!("AUTH default wrong:{at}"));
        it.flood(Door::Resp, 16, &Script::repeat(commands(lines), 1_000), Reading::All)
    })
    .by(LOCKED),
    Shape::new("auth-long", Door::Resp, "logins with names and passwords of 16 KB", |it| {
        let long = "p".repeat(16_000);
        let lines = [format!("AUTH {long} {long}"), format!("HELLO 3 AUTH {long} {long}")];
        it.flood(Door::Resp, 16, &Script::repeat(commands(lines), 5_000), Reading::Never)
    })
    .by(LOCKED),
    Shape::new("auth-connections", Door::Resp, "1,000 clients that each fail to log in", |it| {
        let script = Script::repeat(command("AUTH nosuchuser wrong"), 20);
        it.flood(Door::Resp, 1_000, &script, Reading::All)
    })
    .by(LOCKED),
    Shape::new(
        "acl-users",
        Door::Resp,
        "ACL SETUSER of 100,000 users, and ACL LIST unread",
        |it| {
            let lines =
                (0..100_000).map(|at| format!("ACL SETUSER user:{at} on >password ~* +@all"));
            made_users(it, lines)
        },
    )
    .by(LOCKED)
    .spoiling(),
    Shape::new("acl-patterns", Door::Resp, "users with patterns of 60,000 bytes", |it| {
        let long = "p".repeat(60_000);
        made_users(it, (0..2_000).map(|at| format!("ACL SETUSER user:{at} on ~{long}{at} &{long}")))
    })
    .by(LOCKED)
    .spoiling(),
    Shape::new("acl-one-user", Door::Resp, "one user with 100,000 patterns and passwords", |it| {
        made_users(
            it,
            (0..100_000).map(|at| format!("ACL SETUSER one on ~pattern:{at}* >word:{at}")),
        )
    })
    .by(LOCKED)
    .spoiling(),
    Shape::new("acl-selectors", Door::Resp, "users with hundreds of selectors", |it| {
        let selectors: String = (0..500).map(|at| format!(" (~selected:{at} +get)")).collect();
        let words = selectors.replace(" (", "\t(");
        made_users(
            it,
            (0..500).map(|at| format!("ACL SETUSER user:{at} on{}", words.replace('\t', " "))),
        )
    })
    .by(LOCKED)
    .spoiling(),
    Shape::new("acl-log", Door::Resp, "ACL LOG filled by long names and read all the time", |it| {
        let long = "l".repeat(10_000);
        let lines = [format!("AUTH {long} {long}"), "ACL LOG".to_owned()];
        it.flood(Door::Resp, 16, &Script::repeat(commands(lines), 5_000), Reading::Never)
    })
    .by(LOCKED),
    Shape::new("acl-load", Door::Resp, "ACL LOADs of a file of 20,000 users", |it| {
        let user = |at| format!("user loaded:{at} on >password:{at} ~loaded:{at}:* +@read\n");
        let own = std::fs::read_to_string(&it.acl_file)?;
        std::fs::write(&it.acl_file, own + &(0..20_000).map(user).collect::<String>())?;
        it.flood(Door::Resp, 2, &Script::repeat("ACL LOAD\r\n", 20), Reading::All)
    })
    .by(LOCKED)
    .spoiling(),
    Shape::new("acl-genpass", Door::Resp, "ACL GENPASS, CAT and GETUSER, unread", |it| {
        let lines = ["ACL GENPASS 4096", "ACL CAT", "ACL GETUSER default", "ACL USERS", "ACL LIST"];
        let script = Script::repeat(commands(lines.map(str::to_owned)), 20_000);
        it.flood(Door::Resp, 16, &script, Reading::Never)
    }),
    Shape::new("tracking-prefixes", Door::Resp, "clients that track 10,000 prefixes each", |it| {
        let prefixes: String = (0..10_000).map(|at| format!(" PREFIX p:{at:0>40}:")).collect();
        let line = format!("CLIENT TRACKING ON BCAST{prefixes}");
        let script = Script::once([&b"HELLO 3\r\n"[..], &command(&line)].concat());
        it.flood(Door::Resp, 200, &script, Reading::Never)
    })
    .spoiling(),
    Shape::new(
        "tracking-keys",
        Door::Resp,
        "clients that track 200,000 keys each and do not read",
        |it| {
            let lines = (0..2_000).map(|at| format!("GET tracked:{at:0>100}"));
            let script =
                Script::repeat(commands(lines), 100).behind(b"HELLO 3\r\nCLIENT TRACKING ON\r\n");
            it.flood(Door::Resp, 16, &script, Reading::Never)
        },
    )
    .spoiling(),
    Shape::new(
        "tracking-readers",
        Door::Resp,
        "writes of 2,000 keys, each read by 300 clients that track",
        |it| {
            let names: Vec<String> = (0..2_000).map(|at| format!("read:{at}")).collect();
            let reads = commands([format!("MGET {}", names.join(" "))]);
            let readers = Script::repeat(reads, 200).behind(b"HELLO 3\r\nCLIENT TRACKING ON\r\n");
            let writes = commands([format!("DEL {}", names.join(" "))])
                .into_iter()
                .chain(commands(names.iter().map(|name| format!("SET {name} v"))));
            beside(it, 300, readers, Script::repeat(writes.collect::<Vec<u8>>(), 200))
        },
    )
    .spoiling()
    .by(KNOWN),
    Shape::new(
        "tracking-unread",
        Door::Resp,
        "invalidations of all keys for 100 clients that do not read",
        |it| {
            let script = Script::once("HELLO 3\r\nCLIENT TRACKING ON BCAST\r\n");
            beside(it, 100, script, told_traffic())
        },
    )
    .by(KNOWN),
    Shape::new(
        "tracking-broadcast",
        Door::Resp,
        "changes of 31 keys of 8,000 bytes by one command, for 2,000 clients that do not read",
        |it| {
            let script = Script::once("HELLO 3\r\nCLIENT TRACKING ON BCAST\r\n");
            let pairs: Vec<String> =
                (0..31).map(|at| format!("{at}:{} v", "b".repeat(8_000))).collect();
            let write = commands([format!("MSET {}", pairs.join(" "))]);
            beside(it, 2_000, script, Script::repeat(write, 1_000))
        },
    )
    .by(KNOWN),
    Shape::new(
        "monitor-unread",
        Door::Resp,
        "20 MONITORs that do not read, beside large traffic",
        |it| beside(it, 20, Script::once("MONITOR\r\n"), told_traffic()),
    )
    .by(KNOWN),
    Shape::new(
        "subscribe-flood",
        Door::Resp,
        "clients that subscribe to 100,000 long names",
        |it| {
            let lines = (0..1_000).map(|at| format!("SUBSCRIBE {at:0>200}"));
            it.flood(Door::Resp, 50, &Script::repeat(commands(lines), 100), Reading::Never)
        },
    ),
    Shape::new("hello-loop", Door::Resp, "HELLO 2 and HELLO 3 by turns, unread", |it| {
        let script = Script::repeat("HELLO 3\r\nHELLO 2\r\nRESET\r\nCLIENT INFO\r\n", 100_000);
        it.flood(Door::Resp, 16, &script, Reading::Never)
    }),
];

/// Creates users and lists all of them without reading, until the deadline.
fn made_users(target: &Target, lines: impl Iterator<Item = String>) -> Result<u64> {
    let script = Script::once(commands(lines));
    let refused = target.flood(Door::Resp, 1, &script, Reading::All)?;
    if target.is_over() {
        return Ok(refused);
    }
    let list = Script::repeat("ACL LIST\r\n", 100);
    Ok(refused + target.flood(Door::Resp, 4, &list, Reading::Never)?)
}

/// The requests that subscribed clients receive messages about.
fn told_traffic() -> Script {
    let lines = (0..200).map(|at| format!("SET told:{at:0>1000} {}", "t".repeat(1_000)));
    Script::repeat(commands(lines), 1_000)
}

/// Subscribed clients that do not read, beside one that makes traffic.
fn beside(target: &Target, count: usize, script: Script, traffic: Script) -> Result<u64> {
    let (told, refused) = target.crowd(Door::Resp, count);
    std::thread::scope(|scope| {
        let told = scope.spawn(move || target.pump(told, &script, Reading::Never));
        let refused_traffic = target.flood(Door::Resp, 2, &traffic, Reading::All);
        Ok(refused + refused_traffic? + told.join().unwrap_or_default())
    })
}
