//! The job's file system: a root from nothing, read-only copies of chosen trees, a scratch of counted size, four devices,
//! a /proc that shows the job to itself. Built from scratch, so no link of a stranger lies on the way.

use super::plan::{Plan, Refused, Step};
use super::sys;
use std::fs::{self, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// What a job finds in /dev.
pub const DEVICES: &[&str] = &["null", "zero", "random", "urandom"];

/// A host path that must be there before the root changes, and gone afterwards.
pub struct Marks {
    seen: Vec<&'static str>,
}

/// A tree of the host, copied before the new root hides it.
struct Tree {
    path: String,
    copy: OwnedFd,
    is_dir: bool,
}

pub fn marks() -> Marks {
    Marks { seen: HOST_PATHS.iter().copied().filter(|path| Path::new(path).exists()).collect() }
}

impl Marks {
    pub fn before(&self) -> usize {
        self.seen.len()
    }

    /// Host paths that are still in sight.
    pub fn left(&self) -> Vec<&'static str> {
        self.seen.iter().copied().filter(|path| Path::new(path).exists()).collect()
    }
}

/// Builds the new root and moves into it. Gives the trees that the job may read.
pub fn build(plan: &Plan) -> Result<Vec<String>, Refused> {
    let fault = |what: &'static str| Refused::io("root", what);
    sys::mount("none", "/", "none", libc::MS_REC | libc::MS_PRIVATE, "").map_err(fault("private mounts"))?;
    let (trees, links) = trees(plan)?;
    let devices = DEVICES
        .iter()
        .map(|name| Ok((*name, copy(&format!("/dev/{name}"), sys::RDONLY | sys::NOSUID | sys::NOEXEC)?)))
        .collect::<Result<Vec<_>, Refused>>()?;

    let base = BASES.iter().find(|path| Path::new(path).is_dir()).ok_or_else(|| Refused::new("root", "no /tmp"))?;
    let quiet = libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount("tmpfs", base, "tmpfs", quiet, "size=1m,nr_inodes=1024,mode=755").map_err(fault("tmpfs"))?;
    std::env::set_current_dir(base).map_err(fault("new root"))?;

    for folder in ["work", "tmp", "proc", "dev", "etc", ".canary"] {
        fs::create_dir_all(folder).map_err(fault("folder of the root"))?;
    }
    for tree in &trees {
        let at = tree.path.trim_start_matches('/');
        if tree.is_dir {
            fs::create_dir_all(at).map_err(fault("folder for a tree"))?;
        } else {
            if let Some(parent) = Path::new(at).parent() {
                fs::create_dir_all(parent).map_err(fault("folder for a file"))?;
            }
            fs::write(at, "").map_err(fault("place for a file"))?;
        }
        sys::move_mount(tree.copy.as_fd(), at).map_err(fault("tree"))?;
    }
    for (at, target) in &links {
        symlink(target, at.trim_start_matches('/')).map_err(fault("link of the root"))?;
    }
    for (name, copy) in &devices {
        let at = format!("dev/{name}");
        fs::write(&at, "").map_err(fault("place for a device"))?;
        sys::move_mount(copy.as_fd(), &at).map_err(fault("device"))?;
    }
    for (at, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(target, format!("dev/{at}")).map_err(fault("link in /dev"))?;
    }
    let id = plan.inner_id();
    fs::write("etc/passwd", format!("root:x:0:0::/:/bin/false\njob:x:{id}:{id}::/work:/bin/false\n"))
        .and_then(|()| fs::write("etc/group", format!("root:x:0:\njob:x:{id}:\n")))
        .and_then(|()| fs::write("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"))
        .map_err(fault("file in /etc"))?;

    let proc_flags = quiet | libc::MS_NOEXEC;
    let data = if plan.keeps(Step::RestrictedProc) { "subset=pid,hidepid=invisible" } else { "" };
    sys::mount("proc", "proc", "proc", proc_flags, data).map_err(fault("restricted /proc"))?;
    scratch(plan)?;
    canary_files()?;
    if plan.keeps(Step::PivotRoot) {
        sys::pivot_here().map_err(fault("pivot_root"))?;
    }
    std::env::set_current_dir("/").map_err(fault("root"))?;
    Ok(trees.into_iter().map(|tree| tree.path).collect())
}

/// Nothing but the scratch can be written from here on.
pub fn close(plan: &Plan) -> Result<(), Refused> {
    if plan.keeps(Step::ReadOnlyRoot) {
        let root = fs::File::open("/").map_err(Refused::io("root", "open the root"))?;
        sys::set_mount(root.as_fd(), sys::RDONLY | sys::NOSUID | sys::NODEV | sys::NOEXEC, false)
            .map_err(Refused::io("root", "read-only root"))?;
    }
    Ok(())
}

/// Makes a placed input a mount of its own that cannot be written, replaced or removed.
pub fn freeze(path: &str) -> Result<(), Refused> {
    let fault = |what: &'static str| Refused::io("root", what);
    sys::mount(path, path, "none", libc::MS_BIND, "").map_err(fault("bind an input"))?;
    let placed = fs::File::open(path).map_err(fault("open an input"))?;
    sys::set_mount(placed.as_fd(), sys::RDONLY | sys::NOSUID | sys::NODEV, false).map_err(fault("read-only input"))
}

/// Links of the root, and where each leads.
type Links = Vec<(String, String)>;

fn trees(plan: &Plan) -> Result<(Vec<Tree>, Links), Refused> {
    let mut trees = Vec::new();
    let mut links = Vec::new();
    let mut flags = sys::NOSUID | sys::NODEV;
    if plan.keeps(Step::ReadOnlyTrees) {
        flags |= sys::RDONLY;
    }
    // Where a distribution has merged /usr these are links into it; elsewhere they are trees that belong to it.
    let merged = plan.policy.readable.iter().any(|path| path == "/usr");
    let roots = SYSTEM_ROOTS.iter().filter(|_| merged).map(|path| (*path).to_owned());
    for path in plan.policy.readable.iter().cloned().chain(roots) {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        if found.is_symlink() && SYSTEM_ROOTS.contains(&path.as_str()) {
            let target = fs::read_link(&path).map_err(Refused::io("root", "link of the host"))?;
            links.push((path, target.to_string_lossy().into_owned()));
            continue;
        }
        let is_dir = Path::new(&path).is_dir();
        trees.push(Tree { copy: copy(&path, flags)?, path, is_dir });
    }
    Ok((trees, links))
}

fn copy(path: &str, flags: u64) -> Result<OwnedFd, Refused> {
    let fault = |e: std::io::Error| Refused::new("root", format!("{path} cannot be copied into the root: {e}"));
    let copy = sys::open_tree(path).map_err(fault)?;
    sys::set_mount(copy.as_fd(), flags, true).map_err(fault)?;
    Ok(copy)
}

fn scratch(plan: &Plan) -> Result<(), Refused> {
    let fault = |what: &'static str| Refused::io("root", what);
    let policy = &plan.policy;
    let mut flags = libc::MS_NOSUID | libc::MS_NODEV;
    if !policy.execute_scratch {
        flags |= libc::MS_NOEXEC;
    }
    let data = if plan.keeps(Step::ScratchLimit) {
        format!("size={},nr_inodes={},mode=755", policy.scratch_bytes, policy.scratch_files)
    } else {
        "mode=755".to_owned()
    };
    fs::create_dir(".scratch").map_err(fault("scratch"))?;
    sys::mount("scratch", ".scratch", "tmpfs", flags, &data).map_err(fault("scratch"))?;
    for folder in ["work", "tmp"] {
        let inside = format!(".scratch/{folder}");
        fs::create_dir(&inside).map_err(fault("scratch"))?;
        fs::set_permissions(&inside, Permissions::from_mode(0o1777)).map_err(fault("scratch"))?;
        sys::mount(&inside, folder, "none", libc::MS_BIND, "").map_err(fault("scratch"))?;
    }
    sys::detach(".scratch").map_err(fault("scratch"))?;
    fs::remove_dir(".scratch").map_err(fault("scratch"))
}

/// Files that every permission but Landlock would let the job have.
fn canary_files() -> Result<(), Refused> {
    let fault = |what: &'static str| Refused::io("root", what);
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount("canary", ".canary", "tmpfs", flags, "size=64k,nr_inodes=64,mode=755").map_err(fault("canaries"))?;
    for (name, mode) in [("read", 0o444), ("file", 0o666), ("exec", 0o755)] {
        let path = format!(".canary/{name}");
        fs::write(&path, "canary\n").map_err(fault("canaries"))?;
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(fault("canaries"))?;
    }
    for name in ["open", "other"] {
        let path = format!(".canary/{name}");
        fs::create_dir(&path).map_err(fault("canaries"))?;
        fs::set_permissions(&path, Permissions::from_mode(0o777)).map_err(fault("canaries"))?;
    }
    Ok(())
}

const SYSTEM_ROOTS: &[&str] = &["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Any folder of the host does; it is hidden in this namespace only.
const BASES: &[&str] = &["/tmp", "/run", "/mnt", "/var"];
const HOST_PATHS: &[&str] = &["/proc/sys/kernel/ostype", "/sys/kernel", "/var/lib", "/root", "/home", "/boot"];
