//! Configuration of other servers: any bytes are translated or refused.

/// An input is a redis.conf, and at the same time a command line of memcached.
pub fn foreign_configs(data: &[u8]) {
    if let Ok(imported) = migrate::redis_conf::import(data) {
        let directives = migrate::redis_conf::directives(data).expect("it was just read");
        assert!(imported.ignored.len() + imported.settings.len() <= 2 * directives.len() + 3);
        for (at, setting) in imported.settings.iter().enumerate() {
            let mut others = imported.settings[..at].iter();
            assert!(others.all(|other| other.key != setting.key), "a key stands once");
        }
    }
    let text = String::from_utf8_lossy(data);
    if let Err(error) = migrate::memcached_args::import(text.split_ascii_whitespace()) {
        assert!(!error.is_empty());
    }
}
