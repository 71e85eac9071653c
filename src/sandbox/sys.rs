//! The kernel's calls that the standard library does not have, each as a safe function. All unsafe code of the crate is
//! here and in the canaries; nothing here decides anything.

use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null;

/// Namespaces by the name of their file under /proc/PID/ns.
pub const NAMESPACES: &[(&str, u64)] = &[
    ("user", libc::CLONE_NEWUSER as u64),
    ("pid", libc::CLONE_NEWPID as u64),
    ("mnt", libc::CLONE_NEWNS as u64),
    ("net", libc::CLONE_NEWNET as u64),
    ("ipc", libc::CLONE_NEWIPC as u64),
    ("uts", libc::CLONE_NEWUTS as u64),
    ("cgroup", libc::CLONE_NEWCGROUP as u64),
];

pub enum Forked {
    Child,
    Parent { pid: i32, pidfd: OwnedFd },
}

/// How a process ended, with what it and its waited-for children used.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    pub pid: i32,
    pub status: i32,
    pub cpu_ms: u64,
    pub peak_kib: u64,
}

pub fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// A fork into new namespaces and a control group. Only a process with one thread may call it.
pub fn clone3(flags: u64, group: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    let mut pidfd: RawFd = -1;
    // SAFETY: clone_args is plain data, all zero is a valid value of it.
    let mut args: libc::clone_args = unsafe { zeroed() };
    args.flags = flags | libc::CLONE_PIDFD as u64;
    args.pidfd = &raw mut pidfd as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(group) = group {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = group.as_raw_fd() as u64;
    }
    // SAFETY: no CLONE_VM and no stack, so this is a fork: the child goes on with a copy of everything. args and pidfd
    // outlive the call. The process has one thread, so no lock is left held in the child.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match check(pid)? {
        0 => Ok(Forked::Child),
        // SAFETY: the kernel has stored a fresh descriptor that nobody else owns.
        pid => Ok(Forked::Parent { pid: pid as i32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
    }
}

/// A plain fork; 0 in the child. Only a process with one thread may call it.
pub fn fork() -> io::Result<i32> {
    // SAFETY: the process has one thread, so the child may do whatever the parent could.
    Ok(check(i64::from(unsafe { libc::fork() }))? as i32)
}

pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process without running handlers; always sound.
    unsafe { libc::_exit(code) }
}

/// Waits for a child; with `block` false, `None` when none has ended.
pub fn wait(pid: i32, block: bool) -> io::Result<Option<Waited>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let flags = if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: both pointers are to live locals of the right types.
        let got = unsafe { libc::wait4(pid, &raw mut status, flags, usage.as_mut_ptr()) };
        match check(i64::from(got)) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
            Ok(0) => return Ok(None),
            Ok(pid) => {
                // SAFETY: zeroed at the start and filled by the kernel; every bit pattern is valid.
                let usage = unsafe { usage.assume_init() };
                return Ok(Some(Waited {
                    pid: pid as i32,
                    status,
                    cpu_ms: cpu_ms(&usage),
                    peak_kib: usage.ru_maxrss as u64,
                }));
            }
        }
    }
}

/// Processor time of all children that were waited for.
pub fn children_cpu_ms() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: usage is a live local that the kernel fills.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    cpu_ms(&usage)
}

pub fn kill_pidfd(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain integers and a null siginfo, which the call allows.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), libc::SIGKILL, null::<u8>(), 0) };
    check(sent).map(drop)
}

/// Every signal at its default, none blocked.
pub fn reset_signals() {
    // SAFETY: SIG_DFL is a valid disposition; refusals (SIGKILL, SIGSTOP, reserved numbers) change nothing.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

pub fn ignore_signal(signal: i32, ignored: bool) {
    // SAFETY: both are valid dispositions.
    unsafe {
        libc::signal(signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL });
    }
}

/// Signals by which somebody outside may end a program that did nothing wrong, and that can be noticed.
pub const FROM_OUTSIDE: &[i32] = &[libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGPWR];

/// Blocks SIGCHLD and what may come from outside, and gives a descriptor that is readable when one is due.
pub fn init_signals() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: set is initialised by sigemptyset before it is used.
    let fd = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        for signal in FROM_OUTSIDE {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    owned(fd)
}

pub fn unblock_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: none is initialised by sigemptyset before it is used.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: ends has room for the two descriptors.
    check(i64::from(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    Ok((owned(ends[0])?, owned(ends[1])?))
}

/// A pair of connected sockets that keep message boundaries.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: ends has room for the two descriptors.
    check(i64::from(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }))?;
    Ok((owned(ends[0])?, owned(ends[1])?))
}

/// Makes the kernel say, with each message, which process sent it.
pub fn want_sender(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: on is a live c_int and its size is given.
    let set = unsafe {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, (&raw const on).cast(), size)
    };
    check(i64::from(set)).map(drop)
}

pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let room = size_of_val(fds) as u32;
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
    let (space, len) = unsafe { (libc::CMSG_SPACE(room) as usize, libc::CMSG_LEN(room) as usize) };
    let mut control = vec![0u64; space.div_ceil(8)];
    // SAFETY: msghdr is plain data, all zero is a valid value of it.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = space as _;
        // SAFETY: control is aligned for cmsghdr and has room for one header and all descriptors.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = len as _;
            std::ptr::copy_nonoverlapping(fds.as_ptr(), libc::CMSG_DATA(header).cast::<RawFd>(), fds.len());
        }
    }
    // SAFETY: message points to live buffers of the stated lengths.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    if check(sent as i64)? as usize == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

pub struct Received {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    /// The sender's pid as this process sees it, where `want_sender` was asked for.
    pub sender: Option<i32>,
}

/// One message; empty bytes mean that the other side is closed.
pub fn receive(socket: BorrowedFd<'_>, bytes_max: usize) -> io::Result<Received> {
    let mut bytes = vec![0u8; bytes_max];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 64];
    // SAFETY: msghdr is plain data, all zero is a valid value of it.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let got = loop {
        // SAFETY: message points to live buffers of the stated lengths.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match check(got as i64) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => break other? as usize,
        }
    };
    let mut out = Received { bytes: Vec::new(), fds: Vec::new(), sender: None };
    // SAFETY: the kernel wrote well-formed control messages within msg_controllen; each descriptor is fresh and ours.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            let len = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for i in 0..len / size_of::<RawFd>() {
                        out.fds.push(OwnedFd::from_raw_fd(data.cast::<RawFd>().add(i).read_unaligned()));
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    out.sender = Some(data.cast::<libc::ucred>().read_unaligned().pid);
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    if message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    bytes.truncate(got);
    out.bytes = bytes;
    Ok(out)
}

/// Which of `fds` can be read, or have ended, within the time; `None` waits for ever.
pub fn poll(fds: &[RawFd], timeout_ms: Option<u64>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let timeout = timeout_ms.map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX));
    // SAFETY: polled is a live array of the stated length.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
    match check(i64::from(ready)) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(vec![false; fds.len()]),
        Err(e) => Err(e),
        Ok(_) => Ok(polled.iter().map(|p| p.revents != 0).collect()),
    }
}

pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: fcntl with integers.
    check(i64::from(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })).map(drop)
}

/// Reads a signal descriptor empty. Gives the signals that were due.
pub fn signals_due(fd: BorrowedFd<'_>) -> Vec<i32> {
    let mut out = Vec::new();
    // SAFETY: signalfd_siginfo is plain data, all zero is a valid value of it.
    let mut info: libc::signalfd_siginfo = unsafe { zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: info is live and its size is given; the kernel fills it whole or not at all.
    while unsafe { libc::read(fd.as_raw_fd(), (&raw mut info).cast(), size) } == size as isize {
        out.push(info.ssi_signo as i32);
    }
    out
}

/// Ends every process that this one may signal, and waits for all its children. For the init of a pid namespace that is
/// everybody in it.
pub fn end_all_others() {
    // SAFETY: integers; in a namespace of pids the first process reaches its own namespace only.
    unsafe {
        libc::kill(-1, libc::SIGKILL);
    }
    while wait(-1, true).is_ok() {}
}

/// What can be read without waiting: `None` when nothing is there yet, empty at the end.
pub fn read_some(fd: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; 65_536];
    // SAFETY: bytes is live and its size is given.
    let got = unsafe { libc::read(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
    match check(got as i64) {
        Ok(got) => {
            bytes.truncate(got as usize);
            Some(bytes)
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
        Err(_) => Some(Vec::new()),
    }
}

/// One message, by the plainest call there is.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length of live bytes.
    let sent = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    if check(sent as i64)? as usize == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Makes an event readable for good.
pub fn raise(event: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: eight live bytes.
    unsafe {
        libc::write(event.as_raw_fd(), (&raw const one).cast(), 8);
    }
}

/// A counter that wakes a poll.
pub fn event() -> io::Result<OwnedFd> {
    // SAFETY: eventfd with integers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// A file in memory that nobody can change any more.
pub fn sealed_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    use std::io::{Seek, Write};
    // SAFETY: the name is a C string.
    let fd = owned(unsafe { libc::memfd_create(c"verifica".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes)?;
    file.rewind()?;
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: fcntl with integers.
    check(i64::from(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }))?;
    Ok(file.into())
}

/// The same open file under a number of at least `low`.
pub fn move_up(fd: OwnedFd, low: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl with integers.
    owned(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, low) })
}

/// Puts an open file at a number. What was there is closed by the kernel; nobody may own that number in Rust.
pub fn place(fd: BorrowedFd<'_>, at: RawFd, close_on_exec: bool) -> io::Result<()> {
    let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: dup3 with integers; callers name numbers that no OwnedFd holds.
    check(i64::from(unsafe { libc::dup3(fd.as_raw_fd(), at, flags) })).map(drop)
}

/// Closes every descriptor from `first` up. No OwnedFd of a higher number may be used or dropped afterwards.
pub fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: close_range with integers; the callers are processes that drop nothing of what is closed here.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) }).map(drop)
}

/// Which of these numbers are open descriptors. It allocates none to look with, and asks as many at a time as the limit
/// on descriptors lets it.
pub fn open_among(numbers: std::ops::Range<RawFd>, at_once: usize) -> io::Result<Vec<RawFd>> {
    let mut asked: Vec<libc::pollfd> = numbers.map(|fd| libc::pollfd { fd, events: 0, revents: 0 }).collect();
    for some in asked.chunks_mut(at_once.max(1)) {
        // SAFETY: some is a live array of the stated length.
        check(i64::from(unsafe { libc::poll(some.as_mut_ptr(), some.len() as libc::nfds_t, 0) }))?;
    }
    Ok(asked.iter().filter(|one| one.revents & libc::POLLNVAL == 0).map(|one| one.fd).collect())
}

/// A descriptor of a known number, for as long as the process has it.
pub fn standing(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: used in the launcher for numbers that it keeps open until it ends, executes or closes all above the report.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

pub fn unshare(flags: u64) -> io::Result<()> {
    // SAFETY: unshare with an integer.
    check(i64::from(unsafe { libc::unshare(flags as i32) })).map(drop)
}

pub fn mount(source: &str, target: &str, kind: &str, flags: u64, data: &str) -> io::Result<()> {
    let (source, target, kind, data) = (c_string(source)?, c_string(target)?, c_string(kind)?, c_string(data)?);
    // SAFETY: four live C strings.
    let done =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags as _, data.as_ptr().cast()) };
    check(i64::from(done)).map(drop)
}

/// A detached copy of a tree with everything mounted below it.
pub fn open_tree(path: &str) -> io::Result<OwnedFd> {
    let path = c_string(path)?;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as u32 | libc::AT_RECURSIVE as u32;
    // SAFETY: a live C string and integers.
    owned(check(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })? as RawFd)
}

pub fn move_mount(tree: BorrowedFd<'_>, target: &str) -> io::Result<()> {
    let target = c_string(target)?;
    // SAFETY: live C strings and integers.
    let done = unsafe {
        let empty = c"".as_ptr();
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            empty,
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    check(done).map(drop)
}

/// Sets attributes on a tree of mounts, or on its top alone.
pub fn set_mount(tree: BorrowedFd<'_>, attributes: u64, whole_tree: bool) -> io::Result<()> {
    let attr = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if whole_tree { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: attr is live and its size is given.
    let done = unsafe {
        let size = size_of::<libc::mount_attr>();
        libc::syscall(libc::SYS_mount_setattr, tree.as_raw_fd(), c"".as_ptr(), flags, &raw const attr, size)
    };
    check(done).map(drop)
}

/// Makes `.` the root and lets go of the old one.
pub fn pivot_here() -> io::Result<()> {
    // SAFETY: live C strings.
    unsafe {
        check(libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()))?;
        check(i64::from(libc::umount2(c".".as_ptr(), libc::MNT_DETACH)))?;
    }
    Ok(())
}

pub fn detach(path: &str) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: a live C string.
    check(i64::from(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) })).map(drop)
}

pub fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length of live bytes.
    check(i64::from(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })).map(drop)
}

pub fn drop_groups() -> io::Result<()> {
    // SAFETY: an empty list needs no pointer.
    check(i64::from(unsafe { libc::setgroups(0, null()) })).map(drop)
}

pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: integers; the raw calls change this thread, which is the only one.
    unsafe {
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    Ok(())
}

/// What no program started from here can ever have. It takes a capability itself, so it comes before the user changes.
pub fn drop_bounding_set() -> io::Result<()> {
    for capability in 0..64 {
        if prctl(libc::PR_CAPBSET_READ, capability).is_ok_and(|set| set == 1) {
            prctl(libc::PR_CAPBSET_DROP, capability)?;
        }
    }
    Ok(())
}

pub fn drop_capabilities() -> io::Result<()> {
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64)?;
    prctl(libc::PR_SET_KEEPCAPS, 0)?;
    let header = [LINUX_CAPABILITY_VERSION_3, 0];
    let none = [0u32; 6];
    // SAFETY: header and data have the layout of version 3: two words, and two sets of three words.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }).map(drop)
}

pub fn prctl(option: i32, value: u64) -> io::Result<i64> {
    // SAFETY: only options that take integers are asked for.
    check(i64::from(unsafe { libc::prctl(option, value, 0, 0, 0) }))
}

pub fn new_session() -> io::Result<()> {
    // SAFETY: no arguments.
    check(i64::from(unsafe { libc::setsid() })).map(drop)
}

/// Session, own pid and parent.
pub fn session() -> (i32, i32) {
    // SAFETY: no pointers.
    unsafe { (libc::getsid(0), libc::getpid()) }
}

pub fn umask(mask: u32) -> u32 {
    // SAFETY: an integer.
    unsafe { libc::umask(mask) }
}

pub fn ids() -> (u32, u32) {
    // SAFETY: no arguments.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

pub fn set_limit(resource: u32, value: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: limit is live.
    check(i64::from(unsafe { libc::setrlimit(resource as _, &raw const limit) })).map(drop)
}

/// The soft limit alone.
pub fn set_soft_limit(resource: u32, soft: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: limit(resource)?.1 };
    // SAFETY: limit is live.
    check(i64::from(unsafe { libc::setrlimit(resource as _, &raw const limit) })).map(drop)
}

pub fn limit(resource: u32) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: limit is live.
    check(i64::from(unsafe { libc::getrlimit(resource as _, &raw mut limit) }))?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Processors that this process may run on.
pub fn processors() -> io::Result<Vec<usize>> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: set is live, zeroed, and its size is given; CPU_ISSET reads within it.
    unsafe {
        check(i64::from(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr())))?;
        let set = set.assume_init();
        Ok((0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect())
    }
}

pub fn run_on(cpu: usize) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: set is live, zeroed, and its size is given; the number comes from `processors`.
    unsafe {
        libc::CPU_SET(cpu, &mut *set.as_mut_ptr());
        check(i64::from(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set.as_ptr()))).map(drop)
    }
}

/// Sets the personality, or with `u32::MAX` only reads it.
pub fn personality(value: u32) -> io::Result<u32> {
    // SAFETY: an integer.
    Ok(check(i64::from(unsafe { libc::personality(value.into()) }))? as u32)
}

/// The version of Landlock, and the mask of its known faults that are mended.
pub fn landlock_kernel() -> (i32, u32) {
    let ask = |flag: u32| {
        // SAFETY: a null ruleset with size 0 is how the version is asked for.
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, null::<u8>(), 0usize, flag) }
    };
    (ask(1).max(0) as i32, ask(2).max(0) as u32)
}

/// Executes an open file. Returns only if that failed.
pub fn exec(file: BorrowedFd<'_>, argv: &[CString], envp: &[CString]) -> io::Error {
    let list =
        |words: &[CString]| -> Vec<*const libc::c_char> { words.iter().map(|w| w.as_ptr()).chain([null()]).collect() };
    let (argv, envp) = (list(argv), list(envp));
    // SAFETY: both lists are live, end with null, and point to live C strings.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    io::Error::last_os_error()
}

/// A lock on one byte, which ends with the last descriptor of the open file, or its release. False when another open file
/// has it.
pub fn lock_byte(file: BorrowedFd<'_>, at: u32, take: bool) -> io::Result<bool> {
    // SAFETY: flock is plain data, all zero is a valid value of it.
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = if take { libc::F_WRLCK } else { libc::F_UNLCK } as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = i64::from(at);
    lock.l_len = 1;
    // SAFETY: lock is live.
    match check(i64::from(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) })) {
        Ok(_) => Ok(true),
        Err(e) if matches!(errno(&e), libc::EAGAIN | libc::EACCES) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Kernel release and machine.
pub fn kernel() -> (String, String) {
    let names = names();
    (c_text(&names.release), c_text(&names.machine))
}

pub fn host_name() -> String {
    c_text(&names().nodename)
}

fn names() -> libc::utsname {
    // SAFETY: utsname is plain data, all zero is a valid value of it, and the kernel fills it.
    unsafe {
        let mut names: libc::utsname = zeroed();
        libc::uname(&raw mut names);
        names
    }
}

fn c_text(field: &[libc::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    check(i64::from(fd))?;
    // SAFETY: a fresh descriptor from the kernel that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn cpu_ms(usage: &libc::rusage) -> u64 {
    let ms = |time: libc::timeval| time.tv_sec as u64 * 1_000 + time.tv_usec as u64 / 1_000;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}

/// The constant of the C library's binding does not fit its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const OPEN_TREE_CLONE: u32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;

pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;
