//! A measured server: pinned, and stopped (SIGSTOP) while another is measured.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use steps::programs;

/// A running server, stopped while another is measured.
pub struct Server {
    /// In tables.
    pub name: &'static str,
    scheme: &'static str,
    port: u16,
    child: Child,
}

impl Server {
    /// Starts a program on these CPUs, and stops it once it listens. `PORT` in the arguments stands
    /// for its port.
    pub fn start(
        name: &'static str,
        scheme: &'static str,
        program: &str,
        arguments: &str,
        cpus: &str,
    ) -> Result<Server> {
        let port = programs::free_port()?;
        let mut command = Command::new("taskset");
        command.args(["-c", cpus, program]);
        // Split at single spaces: two in a row are an empty argument.
        let arguments = arguments.replace("PORT", &port.to_string());
        command.args(arguments.split(' '));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let mut server = Server { name, scheme, port, child };
        programs::wait_until_listening(&mut server.child, name, port)?;
        server.signal("STOP")?;
        Ok(server)
    }

    /// The target for the load generator.
    pub fn target(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// taskset replaces itself, so this is the server's own id.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Lets the server run while `measure` does.
    pub fn running<T>(&mut self, measure: impl FnOnce(&Server) -> Result<T>) -> Result<T> {
        self.signal("CONT")?;
        let result = measure(self);
        self.signal("STOP")?;
        result
    }

    fn signal(&self, name: &str) -> Result<()> {
        let process = self.process_id().to_string();
        let is_there = programs::succeeds("kill", &[&format!("-{name}"), &process]);
        ensure!(is_there, "{} is not there any more", self.name);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // KILL reaches a stopped process too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
