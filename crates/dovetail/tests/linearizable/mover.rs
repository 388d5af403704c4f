//! Changes the roles of the server's threads while clients are served, as a restless operator
//! would.

use std::io::{BufRead, BufReader, Error, Result, Write};
use std::net::{SocketAddr, TcpStream};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Changes threads and layers until `is_over`; how many changes were made. Between two of them some
/// requests of its own are served.
pub fn run(address: SocketAddr, seed: u64, is_over: impl Fn() -> bool) -> Result<u64> {
    let mut admin = Admin { reader: BufReader::new(TcpStream::connect(address)?) };
    let mut random = SmallRng::seed_from_u64(seed);
    let most: u32 = admin.setting("threads")?.parse().unwrap_or(1);
    let mut change_count = 0;
    while !is_over() {
        // Two layers of any sizes, or one.
        let threads = random.random_range(1..=most);
        let layers = match random.random_range(0..=threads) {
            0 => "auto".to_owned(),
            dispatchers => dispatchers.to_string(),
        };
        let line = format!("CONFIG SET threads {threads} cr-threads {layers}\r\n");
        // Not every server's threads can be moved; such a one is served as it is.
        change_count += u64::from(admin.ask(&line)? == "+OK");
        for _ in 0..random.random_range(1..4_u32) {
            admin.ask("PING\r\n")?;
        }
    }
    Ok(change_count)
}

struct Admin {
    reader: BufReader<TcpStream>,
}

impl Admin {
    fn ask(&mut self, line: &str) -> Result<String> {
        self.reader.get_mut().write_all(line.as_bytes())?;
        self.line()
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line)? {
            0 => Err(Error::other("the server closed the connection")),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// What CONFIG GET says of it.
    fn setting(&mut self, name: &str) -> Result<String> {
        let mut found = self.ask(&format!("CONFIG GET {name}\r\n"))?;
        // `*2`, then length and word of both the name and the value.
        for _ in 0..4 {
            found = self.line()?;
        }
        Ok(found)
    }
}
