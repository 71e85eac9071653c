//! Slots: a number for each job that runs at the same time on this host, whichever house runs it. As root it gives the
//! job ids that nothing else on the host has, so no job shares a user with another, or with anybody.
//!
//! A slot is taken as long as any process of its job may live, whatever became of the house: the lock is an open file
//! that the launcher and the job's init hold too, and whoever of them goes last ends the rest first. Where all of them
//! were killed at one moment, the mark that a run leaves in the file is still there, and the next one to take the slot
//! looks through the host's processes before it does.

use super::sys;
use crate::limits;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Held for as long as a job may run under it; clones are the same slot.
#[derive(Clone, Debug)]
pub struct Slot {
    number: u32,
    /// The lock that makes the number ours on this host; only root has one.
    lock: Option<Arc<File>>,
}

impl Slot {
    /// The lowest number that nobody on this host holds, and under whose ids nobody is left.
    pub fn take() -> io::Result<Slot> {
        if sys::ids().0 != 0 {
            return Ok(Slot { number: NEXT.fetch_add(1, Ordering::Relaxed), lock: None });
        }
        Slot::take_in(Path::new(LOCKS))
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// Outside ids of the launcher's root and of the job.
    pub(super) fn ids(&self) -> Option<(u32, u32)> {
        self.lock.as_ref().map(|_| ids(self.number))
    }

    /// What whoever may outlive the house holds on to; it keeps the number taken.
    pub(super) fn hold(&self) -> io::Result<OwnedFd> {
        match &self.lock {
            Some(lock) => Ok(lock.try_clone()?.into()),
            None => sys::event(),
        }
    }

    /// A job is about to run under the ids of this slot.
    pub(super) fn begin(&self) -> io::Result<()> {
        self.mark(RUNNING)
    }

    /// Nobody of it is left.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.mark(FREE)
    }

    fn take_in(locks: &Path) -> io::Result<Slot> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(locks)?;
        for number in 0..limits::JOB_SLOTS_MAX {
            if !sys::lock_byte(file.as_fd(), number, true)? {
                continue;
            }
            let mut mark = [FREE];
            let marked = file.read_at(&mut mark, u64::from(number))? == 1 && mark != [FREE];
            if marked && in_use(ids(number))? {
                sys::lock_byte(file.as_fd(), number, false)?;
                continue;
            }
            return Ok(Slot { number, lock: Some(Arc::new(file)) });
        }
        Err(io::Error::other("every slot of this host is taken"))
    }

    fn mark(&self, mark: u8) -> io::Result<()> {
        self.lock.as_ref().map_or(Ok(()), |lock| lock.write_all_at(&[mark], u64::from(self.number)))
    }
}

fn ids(number: u32) -> (u32, u32) {
    (FIRST_ID + 2 * number, FIRST_ID + 2 * number + 1)
}

/// Whether any process of the host has one of these ids.
fn in_use(ids: (u32, u32)) -> io::Result<bool> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().parse::<i32>().is_err() {
            continue;
        }
        // One that has ended by now is not there.
        let Ok(text) = fs::read_to_string(entry.path().join("status")) else { continue };
        let theirs = text.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        if theirs.split_whitespace().filter_map(|id| id.parse().ok()).any(|id: u32| id == ids.0 || id == ids.1) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A byte a slot is locked in it, and holds the mark of a run that has not been seen to end.
const LOCKS: &str = "/run/verifica.slots";
const FREE: u8 = 0;
const RUNNING: u8 = 1;
/// Above every range that distributions and containers hand out, below what is negative in 32 bits.
const FIRST_ID: u32 = 1_987_200_000;
static NEXT: AtomicU32 = AtomicU32::new(0);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    fn locks(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("verifica-slots-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_number_stays_taken_for_as_long_as_anybody_holds_it() {
        let path = locks("held");
        let first = Slot::take_in(&path).expect("slot");
        assert_eq!(first.number(), 0);
        let held = first.hold().expect("held");
        drop(first);
        assert_eq!(Slot::take_in(&path).expect("slot").number(), 1, "somebody holds the first");
        drop(held);
        assert_eq!(Slot::take_in(&path).expect("slot").number(), 0);
        fs::remove_file(&path).expect("locks");
    }

    #[test]
    fn a_slot_whose_run_was_not_seen_to_end_waits_until_nobody_has_its_ids() {
        if sys::ids().0 != 0 {
            return;
        }
        let path = locks("marked");
        // Numbers that no other test of this host takes at the same time.
        let far = limits::JOB_SLOTS_MAX - 1;
        let own = ids(far).1;
        assert!(!in_use(ids(far)).expect("look"));
        let mut left = Command::new("sleep").arg("300").uid(own).gid(own).spawn().expect("a process under the ids");
        let begun = std::time::Instant::now();
        while !in_use(ids(far)).expect("look") {
            assert!(begun.elapsed().as_secs() < 20, "it is not seen");
        }
        let marked = |file: &File| {
            let slot = Slot { number: far, lock: Some(Arc::new(file.try_clone().expect("file"))) };
            slot.begin().expect("mark");
        };
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("locks");
        marked(&file);
        // All others are held by somebody else.
        for number in 0..far {
            assert!(sys::lock_byte(file.as_fd(), number, true).expect("lock"));
        }
        assert!(Slot::take_in(&path).is_err(), "somebody still has the ids of the only slot that is free");
        left.kill().expect("kill");
        left.wait().expect("wait");
        let slot = Slot::take_in(&path).expect("slot");
        assert_eq!(slot.number(), far);
        slot.clear().expect("clear");
        fs::remove_file(&path).expect("locks");
    }
}
