//! Slots: a number for each job that runs at the same time on this host, whichever house runs it. As root it gives the
//! job ids that nothing else on the host has, so no job shares a user with another, or with anybody.

use super::sys;
use crate::limits;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
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
    /// The lowest number that nobody on this host holds.
    pub fn take() -> io::Result<Slot> {
        if sys::ids().0 != 0 {
            return Ok(Slot { number: NEXT.fetch_add(1, Ordering::Relaxed), lock: None });
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(LOCKS)?;
        for number in 0..limits::JOB_SLOTS_MAX {
            if sys::lock_byte(file.as_fd(), number)? {
                return Ok(Slot { number, lock: Some(Arc::new(file)) });
            }
        }
        Err(io::Error::other("every slot of this host is taken"))
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// Outside ids of the launcher's root and of the job.
    pub(super) fn ids(&self) -> Option<(u32, u32)> {
        self.lock.as_ref().map(|_| (FIRST_ID + 2 * self.number, FIRST_ID + 2 * self.number + 1))
    }
}

/// One byte a slot is locked in it; the file itself stays empty.
const LOCKS: &str = "/run/verifica.slots";
/// Above every range that distributions and containers hand out, below what is negative in 32 bits.
const FIRST_ID: u32 = 1_987_200_000;
static NEXT: AtomicU32 = AtomicU32::new(0);
