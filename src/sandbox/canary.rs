//! Canaries: small attempts at what a protection forbids, made before the protection and again after it. Only one that
//! could be done before and is refused as expected afterwards says anything; what this host refuses by itself is noted as
//! such. All of it happens in the job's own process, before a single instruction of the job.

use super::plan::{Plan, Refused};
use super::sys;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::ptr::null;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    pub id: String,
    /// The protection that it stands for.
    pub protection: String,
    pub before: String,
    pub after: String,
    pub ok: bool,
    /// The host refused it before the step already; the step alone is not what this one shows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub natural: bool,
}

/// A canary whose control must have worked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Without a control that worked, the run is refused.
    Essential,
    /// A host may refuse it by itself.
    Either,
}

/// An attempt: 0 when it could be done, else the errno.
pub struct Attempt {
    pub id: &'static str,
    pub protection: &'static str,
    pub want: &'static [i32],
    pub weight: Weight,
    run: Box<dyn Fn() -> i32>,
}

impl Canary {
    pub fn judge(attempt: &Attempt, before: i32, after: i32) -> Canary {
        let natural = attempt.want.contains(&before);
        let ok = attempt.want.contains(&after) && !(natural && attempt.weight == Weight::Essential);
        Canary {
            id: attempt.id.to_owned(),
            protection: attempt.protection.to_owned(),
            before: name(before),
            after: name(after),
            ok,
            natural,
        }
    }

    pub fn fact(id: &str, protection: &str, before: String, after: String, ok: bool) -> Canary {
        Canary { id: id.to_owned(), protection: protection.to_owned(), before, after, ok, natural: false }
    }
}

impl Attempt {
    pub fn try_it(&self) -> i32 {
        (self.run)()
    }
}

/// A process of the same user that is outside whatever this process puts on itself.
pub struct Outsider {
    pub pid: i32,
    /// It ends when this is closed.
    _life: OwnedFd,
}

impl Outsider {
    /// Forks it. Before it waits it makes the 32-bit call that the filter will forbid, as that one's control.
    pub fn start(report: RawFd) -> io::Result<Outsider> {
        let (ended, life) = sys::pipe()?;
        let pid = sys::fork()?;
        if pid == 0 {
            drop(life);
            // SAFETY: the descriptor is this copy's own; the parent keeps its copy open.
            drop(unsafe { OwnedFd::from_raw_fd(report) });
            let code = foreign_call();
            let _ = sys::poll(&[ended.as_raw_fd()], None);
            sys::exit_now(code);
        }
        Ok(Outsider { pid, _life: life })
    }

    /// Lets it end, and tells how its own 32-bit call went: 0, or the signal that ended it.
    pub fn finish(self) -> io::Result<i32> {
        let Outsider { pid, _life } = self;
        drop(_life);
        Ok(sys::wait(pid, true)?.map_or(libc::ECHILD, |ended| ended.status & 0x7f))
    }
}

/// The same 32-bit call from a child of this process; the signal that ended it, 0 if none did.
pub fn foreign_child() -> io::Result<i32> {
    let pid = sys::fork()?;
    if pid == 0 {
        sys::exit_now(foreign_call());
    }
    Ok(sys::wait(pid, true)?.map_or(libc::ECHILD, |ended| ended.status & 0x7f))
}

/// What Landlock must end: files, devices, signals, sockets.
pub fn landlock_attempts(outsider: i32) -> io::Result<Vec<Attempt>> {
    File::create("/.canary/open/old")?;
    let address = SocketAddr::from_abstract_name("verifica-canary")?;
    let listener = UnixListener::bind_addr(&address)?;
    let connect = move || {
        let _ = &listener;
        done(UnixStream::connect_addr(&address))
    };
    Ok(vec![
        landlock("landlock.read", &[libc::EACCES], || done(File::open("/.canary/read"))),
        landlock("landlock.list", &[libc::EACCES], || done(fs::read_dir("/.canary/open"))),
        landlock("landlock.write", &[libc::EACCES], || done(OpenOptions::new().write(true).open("/.canary/file"))),
        landlock("landlock.create", &[libc::EACCES], || {
            done(File::create_new("/.canary/open/new").and_then(|_| fs::remove_file("/.canary/open/new")))
        }),
        landlock("landlock.remove", &[libc::EACCES], || {
            done(fs::remove_file("/.canary/open/old").and_then(|()| File::create_new("/.canary/open/old")))
        }),
        landlock("landlock.truncate", &[libc::EACCES], || {
            // SAFETY: a live C string.
            outcome(i64::from(unsafe { libc::truncate(c"/.canary/file".as_ptr(), 1) }))
        }),
        landlock("landlock.link", &[libc::EACCES, libc::EXDEV], || {
            done(
                fs::hard_link("/.canary/open/old", "/.canary/other/old")
                    .and_then(|()| fs::remove_file("/.canary/other/old")),
            )
        }),
        landlock("landlock.execute", &[libc::EACCES], || {
            let argv = [c"x".as_ptr(), null()];
            // SAFETY: live C strings and lists that end with null; the file is no program, so the call returns.
            outcome(i64::from(unsafe { libc::execve(c"/.canary/exec".as_ptr(), argv.as_ptr(), [null()].as_ptr()) }))
        }),
        landlock("landlock.device", &[libc::EACCES], || {
            let Ok(device) = File::open("/dev/null") else { return libc::EBADF };
            let mut room = [0u8; 64];
            // SAFETY: TCGETS writes at most a termios, which fits.
            outcome(i64::from(unsafe { libc::ioctl(device.as_raw_fd(), libc::TCGETS, room.as_mut_ptr()) }))
        }),
        landlock("landlock.signal", &[libc::EPERM], move || {
            // SAFETY: signal 0 only asks.
            outcome(i64::from(unsafe { libc::kill(outsider, 0) }))
        }),
        landlock("landlock.abstract", &[libc::EPERM], connect),
        landlock("landlock.bind", &[libc::EACCES], || {
            tcp(|fd, address, size| {
                // SAFETY: address is a live sockaddr_in of that size.
                unsafe { libc::bind(fd, address, size) }
            })
        }),
        landlock("landlock.connect", &[libc::EACCES], || {
            tcp(|fd, address, size| {
                // SAFETY: address is a live sockaddr_in of that size.
                unsafe { libc::connect(fd, address, size) }
            })
        }),
    ])
}

/// What the filters must end: calls by number, with arguments that harm nothing where they still work.
pub fn seccomp_attempts(plan: &Plan) -> Vec<Attempt> {
    const ALL: i64 = -1;
    const NOBODY: i64 = 0x7fff_fff0;
    let calls: &[(&'static str, i64, [i64; 6])] = &[
        ("seccomp.io_uring", libc::SYS_io_uring_setup, [0; 6]),
        ("seccomp.userfaultfd", libc::SYS_userfaultfd, [ALL, 0, 0, 0, 0, 0]),
        ("seccomp.perf", libc::SYS_perf_event_open, [0; 6]),
        ("seccomp.bpf", libc::SYS_bpf, [ALL, 0, 0, 0, 0, 0]),
        ("seccomp.add_key", libc::SYS_add_key, [0; 6]),
        ("seccomp.keyctl", libc::SYS_keyctl, [ALL, 0, 0, 0, 0, 0]),
        ("seccomp.ptrace", libc::SYS_ptrace, [libc::PTRACE_ATTACH as i64, NOBODY, 0, 0, 0, 0]),
        ("seccomp.process_vm", libc::SYS_process_vm_readv, [NOBODY, 0, 0, 0, 0, 0]),
        ("seccomp.pidfd_getfd", libc::SYS_pidfd_getfd, [ALL, ALL, 0, 0, 0, 0]),
        ("seccomp.kcmp", libc::SYS_kcmp, [NOBODY, NOBODY, 0, 0, 0, 0]),
        ("seccomp.unshare", libc::SYS_unshare, [0; 6]),
        ("seccomp.setns", libc::SYS_setns, [ALL, 0, 0, 0, 0, 0]),
        ("seccomp.clone_namespace", libc::SYS_clone, [(libc::CLONE_NEWUSER | libc::CLONE_FS) as i64, 0, 0, 0, 0, 0]),
        ("seccomp.mount", libc::SYS_mount, [0; 6]),
        ("seccomp.umount", libc::SYS_umount2, [0, 0x0fff_fff0, 0, 0, 0, 0]),
        ("seccomp.chroot", libc::SYS_chroot, [0; 6]),
        ("seccomp.open_tree", libc::SYS_open_tree, [ALL, 0, 0x0fff_ffff, 0, 0, 0]),
        ("seccomp.fsopen", libc::SYS_fsopen, [0, 0x0fff_ffff, 0, 0, 0, 0]),
        ("seccomp.name_to_handle", libc::SYS_name_to_handle_at, [ALL, 0, 0, 0, 0x0fff_ffff, 0]),
        ("seccomp.memfd", libc::SYS_memfd_create, [0, 0x0fff_ffff, 0, 0, 0, 0]),
        ("seccomp.personality", libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]),
        ("seccomp.shm", libc::SYS_shmget, [0; 6]),
        ("seccomp.msg", libc::SYS_msgget, [1, 0, 0, 0, 0, 0]),
        ("seccomp.sem", libc::SYS_semget, [1, 0, 0, 0, 0, 0]),
        ("seccomp.mq", libc::SYS_mq_open, [0; 6]),
        ("seccomp.inotify", libc::SYS_inotify_init1, [0x0fff_ffff, 0, 0, 0, 0, 0]),
        ("seccomp.xattr", libc::SYS_setxattr, [0; 6]),
        ("seccomp.other_limits", libc::SYS_prlimit64, [NOBODY, 0, 0, 0, 0, 0]),
        ("seccomp.affinity", libc::SYS_sched_setaffinity, [0; 6]),
        ("seccomp.priority", libc::SYS_setpriority, [99, 0, 0, 0, 0, 0]),
        ("seccomp.prctl", libc::SYS_prctl, [libc::PR_GET_TIMERSLACK as i64, 0, 0, 0, 0, 0]),
        ("seccomp.tiocsti", libc::SYS_ioctl, [0, libc::TIOCSTI as i64, 0, 0, 0, 0]),
        ("seccomp.tioclinux", libc::SYS_ioctl, [0, 0x541c, 0, 0, 0, 0]),
        ("seccomp.module", libc::SYS_finit_module, [ALL, 0, 0, 0, 0, 0]),
        ("seccomp.unknown", 9_999, [0; 6]),
    ];
    let mut out: Vec<Attempt> =
        calls.iter().map(|(id, number, args)| call(id, *number, *args, &[libc::EPERM], Weight::Either)).collect();
    out.push(call("seccomp.absent", libc::SYS_clone3, [0; 6], &[libc::ENOSYS], Weight::Essential));
    if !plan.policy.set_modes {
        out.push(call("seccomp.chmod", libc::SYS_fchmod, [ALL, 0, 0, 0, 0, 0], &[libc::EPERM], Weight::Essential));
    }
    if cfg!(target_arch = "x86_64") {
        out.push(call("seccomp.x32", 0x4000_0000 + 39, [0; 6], &[libc::EPERM], Weight::Essential));
    }
    out.push(attempt("seccomp.marker", "seccomp", &[libc::ENOTUNIQ], Weight::Essential, || {
        let mut timer = [0u64; 4];
        // SAFETY: getitimer writes an itimerval, which fits.
        outcome(unsafe { libc::syscall(libc::SYS_getitimer, libc::ITIMER_REAL, timer.as_mut_ptr()) })
    }));
    for (id, family, kind, weight) in [
        ("network.inet", libc::AF_INET, libc::SOCK_STREAM, Weight::Essential),
        ("network.udp", libc::AF_INET, libc::SOCK_DGRAM, Weight::Essential),
        ("network.inet6", libc::AF_INET6, libc::SOCK_STREAM, Weight::Either),
        ("network.unix", libc::AF_UNIX, libc::SOCK_STREAM, Weight::Essential),
        ("network.netlink", libc::AF_NETLINK, libc::SOCK_RAW, Weight::Either),
        ("network.packet", libc::AF_PACKET, libc::SOCK_RAW, Weight::Either),
        ("network.vsock", libc::AF_VSOCK, libc::SOCK_STREAM, Weight::Either),
        ("network.alg", libc::AF_ALG, libc::SOCK_SEQPACKET, Weight::Either),
    ] {
        out.push(attempt(id, "network", &[libc::EPERM], weight, move || {
            // SAFETY: socket with integers; a descriptor that comes is closed at once.
            opened(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) })
        }));
    }
    let pair = move |family: i32| {
        let mut ends = [-1; 2];
        // SAFETY: ends has room for both descriptors, which are closed at once.
        let made = unsafe { libc::socketpair(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) };
        if made == 0 {
            opened(ends[0]);
            opened(ends[1]);
        }
        outcome(i64::from(made))
    };
    if !plan.policy.socketpair {
        out.push(attempt("network.pair", "network", &[libc::EPERM], Weight::Essential, move || pair(libc::AF_UNIX)));
    }
    out.push(attempt("network.pair_inet", "network", &[libc::EPERM], Weight::Essential, move || pair(libc::AF_INET)));
    out
}

/// Growing a file one byte past the limit; 0 when it could be done.
pub fn grow(bytes: u64) -> i32 {
    let path = "/tmp/.canary";
    let done = File::create(path).and_then(|file| file.set_len(bytes + 1));
    let _ = fs::remove_file(path);
    done.err().map_or(0, |e| sys::errno(&e))
}

/// Mapping more memory than the limit; 0 when it could be done.
pub fn map(bytes: u64) -> i32 {
    let size = bytes as usize;
    // SAFETY: an anonymous mapping without access, which is removed again.
    unsafe {
        let at =
            libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        if at == libc::MAP_FAILED {
            return sys::errno(&io::Error::last_os_error());
        }
        libc::munmap(at, size);
    }
    0
}

/// Making a folder in a tree of the host: the refusal of a read-only mount comes before that of permissions.
pub fn make_folder(tree: &str) -> i32 {
    let path = format!("{tree}/.canary");
    let made = fs::create_dir(&path);
    if made.is_ok() {
        let _ = fs::remove_dir(&path);
    }
    made.err().map_or(0, |e| sys::errno(&e))
}

/// The first that objects, as the reason of a refusal.
pub fn objection(canaries: &[Canary]) -> Result<(), Refused> {
    match canaries.iter().find(|canary| !canary.ok) {
        None => Ok(()),
        Some(c) => Err(Refused::new(
            &c.protection,
            format!("the canary {} objects: before {}, after {}", c.id, c.before, c.after),
        )),
    }
}

pub fn name(errno: i32) -> String {
    let known = [
        (0, "done"),
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::ENXIO, "ENXIO"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOEXEC, "ENOEXEC"),
        (libc::EBADF, "EBADF"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EXDEV, "EXDEV"),
        (libc::EINVAL, "EINVAL"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::EFBIG, "EFBIG"),
        (libc::EROFS, "EROFS"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ENOTUNIQ, "ENOTUNIQ"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
        (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
        (libc::ENETUNREACH, "ENETUNREACH"),
        (libc::EEXIST, "EEXIST"),
    ];
    known.iter().find(|(number, _)| *number == errno).map_or_else(|| format!("errno {errno}"), |(_, n)| (*n).to_owned())
}

fn landlock(id: &'static str, want: &'static [i32], run: impl Fn() -> i32 + 'static) -> Attempt {
    attempt(id, "landlock", want, Weight::Essential, run)
}

fn attempt(
    id: &'static str,
    protection: &'static str,
    want: &'static [i32],
    weight: Weight,
    run: impl Fn() -> i32 + 'static,
) -> Attempt {
    Attempt { id, protection, want, weight, run: Box::new(run) }
}

fn call(id: &'static str, number: i64, args: [i64; 6], want: &'static [i32], weight: Weight) -> Attempt {
    attempt(id, "seccomp", want, weight, move || {
        let [a, b, c, d, e, f] = args;
        // SAFETY: the arguments are chosen so that a kernel that takes the call finds a null pointer, a descriptor or a
        // process that is not there, or flags that do not exist; the few that succeed change nothing.
        outcome(unsafe { libc::syscall(number, a, b, c, d, e, f) })
    })
}

fn tcp(act: impl Fn(RawFd, *const libc::sockaddr, libc::socklen_t) -> i32) -> i32 {
    // SAFETY: socket with integers; the descriptor is fresh and closed by its owner. The address is plain data.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return sys::errno(&io::Error::last_os_error());
        }
        let owner = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = 9_999_u16.to_be();
        let done =
            act(owner.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_in>() as libc::socklen_t);
        outcome(i64::from(done))
    }
}

/// Makes a call by the 32-bit table, where the processor has one. The filter ends the process for it.
fn foreign_call() -> i32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: getpid by the 32-bit table takes nothing and changes nothing but the registers named.
    unsafe {
        let mut number: i32 = 20;
        std::arch::asm!("int 0x80", inout("eax") number, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        std::hint::black_box(&mut number);
    }
    0
}

fn opened(fd: RawFd) -> i32 {
    if fd < 0 {
        return sys::errno(&io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    0
}

fn outcome(result: i64) -> i32 {
    if result < 0 { sys::errno(&io::Error::last_os_error()) } else { 0 }
}

fn done<T>(result: io::Result<T>) -> i32 {
    result.err().map_or(0, |e| sys::errno(&e))
}
