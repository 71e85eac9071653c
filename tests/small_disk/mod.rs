//! A disk of a few megabytes for tests of a full one.

use std::path::Path;
use std::process::{Command, Stdio};

/// A tmpfs of its own, taken away at the end.
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where none can be mounted, which is said loudly and is a failure where nothing may be skipped.
    pub fn new(bytes: &str) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            assert!(std::env::var_os("VERIFICA_REQUIRE_ALL").is_none(), "a small tmpfs cannot be mounted here");
            eprintln!("SKIPPED: a small tmpfs cannot be mounted here (it takes root), so the full disk was not tried");
        }
        mounted.then_some(SmallDisk(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}
