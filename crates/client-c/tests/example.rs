//! Compiles examples/tour.c against both libraries and runs it on a server in this process.
use std::path::{Path, PathBuf};
use std::process::Command;

use server::{Config, Pin, Poll, Server};

/// The folder that cargo put the libraries in: this test's own.
fn libraries() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().to_owned()
}

fn has_compiler() -> bool {
    Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Compiles the example; the linker's further arguments say how it finds the library.
fn compile(into: &Path, language: &[&str], link: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic"])
        .args(language)
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join("examples/tour.c"))
        .arg("-o")
        .arg(into)
        .args(link)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn tour(program: &Path, target: &str) {
    let output = Command::new(program).arg(target).output().unwrap();
    let (said, failed) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{target}: {:?}\n{said}{failed}", output.status);
    assert!(said.ends_with(": all went well\n"), "{target}: {said}");
}

#[test]
fn the_example_compiles_and_its_tour_succeeds() {
    if !has_compiler() {
        println!("skipped: there is no cc");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let shm = folder.path().join("socket");
    let server = Server::start(Config {
        resp: None,
        memcached: None,
        native: Some(([127, 0, 0, 1], 0).into()),
        shm: Some(shm.clone()),
        admin: None,
        memory_bytes: 64 << 20,
        pin: Pin::Off,
        poll: Poll::Block,
        ..Config::default()
    })
    .unwrap();

    let libraries = libraries();
    let archive = libraries.join("libdovetail_client.a");
    let shared = libraries.join("libdovetail_client.so");
    let run_path = format!("-Wl,-rpath,{}", libraries.display());
    let (archive, shared) = (archive.to_str().unwrap(), shared.to_str().unwrap());
    let system = ["-lpthread", "-ldl", "-lm", "-lgcc_s"];
    let still = folder.path().join("still");
    compile(&still, &["-std=c99"], &[&[archive], &system[..]].concat());
    let dynamic = folder.path().join("dynamic");
    compile(&dynamic, &["-std=c11"], &[shared, &run_path]);

    let udp = format!("native://{}", server.native_addr().unwrap());
    for program in [still, dynamic] {
        tour(&program, &udp);
        tour(&program, &format!("shm:{}", shm.display()));
    }
}
