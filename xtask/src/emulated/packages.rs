//! The Debian packages of the emulated machine, and its kernel, which is only unpacked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::Needs;

/// Depends on the newest kernel.
const KERNEL_PACKAGE: &str = "linux-image-amd64";
const KERNEL_FOLDER: &str = "kernel";
/// Modules that are part of the image.
const BUILTIN: &str = "modules.builtin";

/// An unpacked kernel.
pub struct Kernel {
    /// The boot image.
    pub image: PathBuf,
    /// lib/modules/VERSION.
    modules: PathBuf,
}

/// A module, by its name in the kernel.
pub struct Module {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// The missing programs, in one line that says how to get them.
pub fn missing(needs: &Needs, folder: &Path, packages: Vec<&'static str>) -> Option<String> {
    let Needs { what, command, .. } = needs;
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some(format!("{what}; the emulated machine is x86-64 Linux"));
    }
    let lacks_kernel = kernel(folder).is_none();
    if packages.is_empty() && !lacks_kernel {
        return None;
    }
    let mut ways = Vec::new();
    if !packages.is_empty() {
        let names = packages.join(" ");
        ways.push(format!("apt-get install --no-install-recommends {names}"));
    }
    if lacks_kernel {
        ways.push(format!("{KERNEL_PACKAGE} unpacked below {}", folder.display()));
    }
    let ways = ways.join(", and ");
    Some(format!("{what}; `cargo xtask {command} --install` does: {ways}"))
}

/// The packages of the programs.
pub fn missing_packages(needs: &Needs) -> Vec<&'static str> {
    let common = [("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static")];
    let programs = common.iter().chain(needs.programs);
    programs.filter(|(name, _)| program(name).is_none()).map(|(_, package)| *package).collect()
}

/// The path of a program.
pub fn program(name: &str) -> Option<PathBuf> {
    let folders = std::env::var("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/bin"];
    let mut paths = folders.split(':').chain(more).map(|folder| Path::new(folder).join(name));
    paths.find(|path| path.is_file())
}

/// The first file, by name, with this prefix.
pub fn first_with_prefix(prefix: &Path) -> Option<PathBuf> {
    let start = prefix.file_name()?.to_str()?;
    let entries = std::fs::read_dir(prefix.parent()?).ok()?;
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
        })
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Installs packages, and unpacks a kernel without installing it.
pub fn install(needs: &Needs, folder: &Path, packages: Vec<&'static str>) -> Result<()> {
    if !packages.is_empty() {
        let mut command = Command::new("apt-get");
        command.args(["install", "-y", "--no-install-recommends"]).args(&packages);
        succeed(command.env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    if kernel(folder).is_some() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let output = Command::new("apt-cache")
        .args(["depends", "--important", KERNEL_PACKAGE])
        .output()
        .context("cannot start apt-cache")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let package = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.with_context(|| format!("apt knows no {KERNEL_PACKAGE}"))?;
    succeed(Command::new("apt-get").args(["download", package]).current_dir(folder))?;
    let archive = first_with_prefix(&folder.join(format!("{package}_")));
    let archive = archive.with_context(|| format!("apt-get brought no {package}"))?;
    let unpacked = folder.join("unpacked");
    succeed(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
    std::fs::remove_file(&archive)
        .with_context(|| format!("cannot remove {}", archive.display()))?;
    keep_needed(needs, &unpacked, &folder.join(KERNEL_FOLDER)).context("cannot keep the kernel")
}

/// Moves the needed files out of an unpacked kernel, whose other modules take 400 MB.
fn keep_needed(needs: &Needs, unpacked: &Path, kept: &Path) -> Result<()> {
    let kernel = kernel_in(unpacked).context("the package has no kernel")?;
    let image_name = kernel.image.file_name().context("the image has a name")?;
    let version = kernel.modules.file_name().context("modules are in a folder")?;
    let modules = kept.join("lib/modules").join(version);
    std::fs::create_dir_all(&modules)?;
    for module in kernel.modules(needs.modules)? {
        std::fs::write(modules.join(format!("{}.ko", module.name)), module.bytes)?;
    }
    std::fs::copy(kernel.modules.join(BUILTIN), modules.join(BUILTIN))?;
    // The image is moved last: it marks the kernel as complete.
    std::fs::create_dir_all(kept.join("boot"))?;
    std::fs::copy(&kernel.image, kept.join("boot").join(image_name))?;
    Ok(std::fs::remove_dir_all(unpacked)?)
}

fn succeed(command: &mut Command) -> Result<()> {
    println!("== {command:?}");
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}

/// The kernel below that folder.
pub fn kernel(folder: &Path) -> Option<Kernel> {
    kernel_in(&folder.join(KERNEL_FOLDER))
}

fn kernel_in(root: &Path) -> Option<Kernel> {
    let image = first_with_prefix(&root.join("boot/vmlinuz-"))?;
    let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
    let modules = ["lib/modules", "usr/lib/modules"]
        .iter()
        .map(|part| root.join(part).join(&version))
        .find(|path| path.is_dir())?;
    Some(Kernel { image, modules })
}

impl Kernel {
    /// These modules and all that they need, in the order of loading.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<Module>> {
        let mut files = Vec::new();
        list(&self.modules, &mut files)?;
        let builtin = std::fs::read_to_string(self.modules.join(BUILTIN));
        let builtin: BTreeSet<_> =
            builtin.unwrap_or_default().lines().map(|line| module_name(Path::new(line))).collect();
        let mut modules = Vec::new();
        for name in names {
            load(name, &files, &builtin, &mut modules)?;
        }
        Ok(modules)
    }
}

fn load(
    name: &str,
    files: &[PathBuf],
    builtin: &BTreeSet<String>,
    modules: &mut Vec<Module>,
) -> Result<()> {
    if builtin.contains(name) || modules.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let file = files.iter().find(|file| module_name(file) == name);
    let file = file.with_context(|| format!("the kernel has no module {name}: unpack it anew"))?;
    let bytes = read_module(file)?;
    for needed in needs(&bytes) {
        load(&needed, files, builtin, modules)?;
    }
    modules.push(Module { name: name.to_owned(), bytes });
    Ok(())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(&path, files)?;
        } else if path.to_string_lossy().contains(".ko") {
            files.push(path);
        }
    }
    Ok(())
}

/// Files say `-` where the kernel says `_`.
fn module_name(file: &Path) -> String {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_default().split(".ko").next().unwrap_or_default().replace('-', "_")
}

fn read_module(file: &Path) -> Result<Vec<u8>> {
    let name = file.to_string_lossy();
    if name.ends_with(".ko") {
        return std::fs::read(file).with_context(|| format!("cannot read {name}"));
    }
    if !name.ends_with(".ko.xz") {
        bail!("{name} is compressed in a way that is not known here");
    }
    let output = Command::new("xz").arg("-dc").arg(file).output().context("cannot start xz")?;
    ensure!(output.status.success(), "xz cannot unpack {name}");
    Ok(output.stdout)
}

/// The dependencies of a module: `depends=a,b` among its zero-terminated lines.
fn needs(module: &[u8]) -> Vec<String> {
    let lines = module.split(|byte| *byte == 0);
    let names = lines.filter_map(|line| line.strip_prefix(b"depends=")).next().unwrap_or_default();
    let names = String::from_utf8_lossy(names);
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=ib_uverbs,udp-tunnel\0name=rdma_rxe\0";
        assert_eq!(needs(module), ["ib_uverbs", "udp_tunnel"]);
        assert_eq!(needs(b"license=GPL\0depends=\0"), [""; 0]);
    }

    #[test]
    fn a_module_has_one_name_whatever_its_file() {
        let name = |file| module_name(Path::new(file));
        assert_eq!(name("kernel/crypto/crc32-generic.ko"), "crc32_generic");
        assert_eq!(name("kernel/net/dummy.ko.xz"), "dummy");
    }

    #[test]
    fn what_is_needed_is_loaded_first_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, needs: &str| {
            let text = format!("name={name}\0depends={needs}\0");
            std::fs::write(folder.path().join(format!("{name}.ko")), text).unwrap();
        };
        write("c", "b,a");
        write("b", "a,inside");
        write("a", "");
        std::fs::write(folder.path().join("modules.builtin"), "kernel/inside.ko\n").unwrap();
        let modules = folder.path().to_path_buf();
        let kernel = Kernel { image: PathBuf::new(), modules };
        let names: Vec<_> =
            kernel.modules(&["c", "a"]).unwrap().into_iter().map(|module| module.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(kernel.modules(&["d"]).is_err());
    }

    #[test]
    fn of_a_kernel_only_what_is_needed_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let unpacked = folder.path().join("unpacked");
        let modules = unpacked.join("lib/modules/6.1/kernel/net");
        std::fs::create_dir_all(&modules).unwrap();
        std::fs::create_dir_all(unpacked.join("boot")).unwrap();
        std::fs::write(unpacked.join("boot/vmlinuz-6.1"), "image").unwrap();
        std::fs::write(unpacked.join("lib/modules/6.1/modules.builtin"), "").unwrap();
        let needs = Needs { what: "", command: "test-x", programs: &[], modules: &["a", "b"] };
        for name in needs.modules.iter().chain(&["other"]) {
            std::fs::write(modules.join(format!("{name}.ko")), "depends=\0").unwrap();
        }
        assert!(kernel(folder.path()).is_none());
        keep_needed(&needs, &unpacked, &folder.path().join(KERNEL_FOLDER)).unwrap();
        let kernel = kernel(folder.path()).unwrap();
        assert_eq!(kernel.modules(needs.modules).unwrap().len(), 2);
        assert!(kernel.modules(&["other"]).is_err());
        assert!(!unpacked.exists());
    }
}
