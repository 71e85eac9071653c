//! What the job's process puts on itself for good: Landlock at the highest version of the kernel, every right handled and
//! nothing negotiable, and three seccomp filters that allow by list.
//!
//! Landlock is never the reason for which "no network" is claimed: its rules for TCP have holes (fast open, multipath).

use super::filter::{self, Answer, Table};
use super::plan::{FilterFacts, LandlockFacts, Plan, Refused, Step};
use super::sys;
use crate::wire::Sha256;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use seccompiler::{BpfProgram, TargetArch};

/// Restricts file, device, network, signal and abstract socket access of this process and all it will start.
pub fn landlock(plan: &Plan, trees: &[String]) -> Result<LandlockFacts, Refused> {
    let (kernel, errata) = sys::landlock_kernel();
    if kernel < ABI_MIN {
        let seen = if kernel == 0 { "no Landlock".to_owned() } else { format!("Landlock version {kernel}") };
        return Err(Refused::new("landlock", format!("the kernel has {seen}; version {ABI_MIN} or newer is needed")));
    }
    let abi = ABI::from(kernel);
    let fault = |what: &'static str| move |e: landlock::RulesetError| Refused::new("landlock", format!("{what}: {e}"));
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let (files, net, scopes) = (AccessFs::from_all(abi), AccessNet::from_all(abi), Scope::from_all(abi));
    if plan.keeps(Step::LandlockFiles) {
        ruleset = ruleset.handle_access(files).map_err(fault("handled file rights"))?;
    }
    if plan.keeps(Step::LandlockNet) {
        ruleset = ruleset.handle_access(net).map_err(fault("handled network rights"))?;
    }
    if plan.keeps(Step::LandlockScopes) {
        ruleset = ruleset.scope(scopes).map_err(fault("scopes"))?;
    }
    let mut created = ruleset.create().map_err(fault("ruleset"))?;
    let mut stated = Vec::new();
    if plan.keeps(Step::LandlockFiles) {
        for (path, rights) in grants(plan, trees, abi) {
            let fd = PathFd::new(&path).map_err(|e| Refused::new("landlock", format!("{path}: {e}")))?;
            stated.push(format!("{path} {:x}", rights.bits()));
            created = created.add_rule(PathBeneath::new(fd, rights)).map_err(fault("rule"))?;
        }
    }
    let status = created.restrict_self().map_err(fault("restriction"))?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err(Refused::new("landlock", "the kernel enforces the rules in part only"));
    }
    Ok(LandlockFacts {
        abi: kernel.min(ABI_KNOWN),
        errata,
        status: "fully_enforced".to_owned(),
        handled_fs: if plan.keeps(Step::LandlockFiles) { files.bits() } else { 0 },
        handled_net: if plan.keeps(Step::LandlockNet) { net.bits() } else { 0 },
        scopes: if plan.keeps(Step::LandlockScopes) { scopes.bits() } else { 0 },
        rules_sha256: Sha256::of(stated.join("\n")),
    })
}

/// The filters in the order in which they must be loaded: the later ones would forbid loading.
pub fn filters(plan: &Plan) -> Result<Vec<BpfProgram>, Refused> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|e| Refused::new("seccomp", e.to_string()))?;
    let arch = audit(arch);
    let all = |calls: &[i64], answer: &Answer| -> Table { each_of(calls).map(|n| (n, answer.clone())).collect() };
    let errno = |number: i32| Answer::Errno(number.unsigned_abs());
    let mut out = Vec::new();
    if plan.keeps(Step::SeccompMarker) {
        out.push(filter::program(arch, &all(&[MARKER], &errno(libc::ENOTUNIQ)), &Answer::Allow));
    }
    if plan.keeps(Step::SeccompAbsent) {
        out.push(filter::program(arch, &all(ABSENT, &errno(libc::ENOSYS)), &Answer::Allow));
    }
    if plan.keeps(Step::SeccompAllowList) {
        out.push(filter::program(arch, &allowed(plan), &errno(libc::EPERM)));
    }
    Ok(out)
}

pub fn load(filters: &[BpfProgram]) -> Result<Vec<FilterFacts>, Refused> {
    let mut facts = Vec::new();
    for filter in filters {
        seccompiler::apply_filter(filter)
            .map_err(|e| Refused::new("seccomp", format!("a filter was not loaded: {e}")))?;
        let mut bytes = Vec::with_capacity(filter.len() * 8);
        for instruction in filter {
            bytes.extend(instruction.code.to_ne_bytes());
            bytes.extend([instruction.jt, instruction.jf]);
            bytes.extend(instruction.k.to_ne_bytes());
        }
        facts.push(FilterFacts { sha256: Sha256::of(bytes), instructions: filter.len() });
    }
    Ok(facts)
}

/// How many filters a whole plan loads.
pub const FILTERS: u64 = 3;

fn grants(plan: &Plan, trees: &[String], abi: ABI) -> Vec<(String, BitFlags<AccessFs>)> {
    let file = AccessFs::from_file(abi);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut scratch = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::RemoveDir
        | AccessFs::RemoveFile
        | AccessFs::MakeDir
        | AccessFs::MakeReg
        | AccessFs::MakeSym
        | AccessFs::MakeFifo
        | AccessFs::Refer;
    if plan.policy.execute_scratch {
        scratch |= AccessFs::Execute;
    }
    let mut out = Vec::new();
    for tree in trees {
        let rights = read | AccessFs::Execute;
        let rights = if std::path::Path::new(tree).is_dir() { rights } else { rights & file };
        out.push((tree.clone(), rights));
    }
    out.push(("/etc".to_owned(), read));
    out.push(("/proc".to_owned(), read));
    out.push(("/work".to_owned(), scratch));
    out.push(("/tmp".to_owned(), scratch));
    for device in super::root::DEVICES {
        out.push((format!("/dev/{device}"), AccessFs::ReadFile | AccessFs::WriteFile));
    }
    out
}

fn each_of(calls: &[i64]) -> impl Iterator<Item = u32> {
    calls.iter().filter_map(|call| u32::try_from(*call).ok())
}

/// By what number the kernel calls an architecture in front of a filter.
const fn audit(arch: TargetArch) -> u32 {
    match arch {
        TargetArch::x86_64 => 0xc000_003e,
        TargetArch::aarch64 => 0xc000_00b7,
        TargetArch::riscv64 => 0xc000_00f3,
    }
}

fn allowed(plan: &Plan) -> Table {
    // The other two filters answer for the last two lists; they stand in front of this one for good.
    let mut lists = vec![ALLOWED, ALLOWED_HERE, ABSENT, &[MARKER]];
    if plan.policy.set_modes {
        lists.extend([MODES, MODES_HERE]);
    }
    if plan.policy.socketpair {
        lists.push(TALK);
    }
    let mut table: Table = lists.into_iter().flat_map(each_of).map(|number| (number, Answer::Allow)).collect();
    // The low half only: that is all the kernel looks at where these arguments are 32 bits wide.
    let any = |argument: u8, values: &[u32]| Answer::AnyOf { argument, values: values.to_vec() };
    let mut some = vec![
        (libc::SYS_ioctl, any(1, IOCTLS)),
        (libc::SYS_prctl, any(0, PRCTLS)),
        // Own limits only.
        (libc::SYS_prlimit64, any(0, &[0])),
        (libc::SYS_clone, Answer::NoneOf { argument: 0, bits: NEW_NAMESPACES }),
    ];
    if plan.policy.socketpair {
        some.push((libc::SYS_socketpair, any(0, &[libc::AF_UNIX.unsigned_abs()])));
    }
    table.extend(some.into_iter().filter_map(|(call, answer)| Some((u32::try_from(call).ok()?, answer))));
    table
}

/// Scopes, which the confinement of signals needs, came with version 6.
const ABI_MIN: i32 = 6;
/// The highest version whose rights are known here.
const ABI_KNOWN: i32 = 10;
/// Answers with an errno that no path of the kernel gives for it: the filter is alive.
const MARKER: i64 = libc::SYS_getitimer;
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u32;
/// Calls whose absence libraries know how to live with. clone3 hides its flags from a filter.
const ABSENT: &[i64] =
    &[libc::SYS_clone3, libc::SYS_openat2, libc::SYS_pidfd_open, libc::SYS_futex_waitv, libc::SYS_epoll_pwait2];
const IOCTLS: &[u32] = &[0x5401, 0x802c_542a, 0x5413, 0x541b, 0x5421, 0x5450, 0x5451];
const PRCTLS: &[u32] = &[
    libc::PR_SET_NAME as u32,
    libc::PR_GET_NAME as u32,
    libc::PR_SET_PDEATHSIG as u32,
    libc::PR_GET_PDEATHSIG as u32,
    libc::PR_GET_DUMPABLE as u32,
    libc::PR_SET_CHILD_SUBREAPER as u32,
    libc::PR_GET_NO_NEW_PRIVS as u32,
    libc::PR_SET_NO_NEW_PRIVS as u32,
    libc::PR_CAPBSET_READ as u32,
    libc::PR_GET_SECCOMP as u32,
    libc::PR_SET_THP_DISABLE as u32,
    0x5356_4d41,
];
const MODES: &[i64] =
    &[libc::SYS_fchmod, libc::SYS_fchmodat, SYS_FCHMODAT2, libc::SYS_utimensat, libc::SYS_fchown, libc::SYS_fchownat];
/// The number is the same on every architecture.
const SYS_FCHMODAT2: i64 = 452;
/// Over sockets that a job can have: pairs.
const TALK: &[i64] = &[
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
];
const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_madvise,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_sigaltstack,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_close_range,
    libc::SYS_openat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_readlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_umask,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_setpgid,
    libc::SYS_getsid,
    libc::SYS_setsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_getpriority,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_capget,
    libc::SYS_getcpu,
    libc::SYS_gettimeofday,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_delete,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_eventfd2,
    libc::SYS_signalfd4,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_futex,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_getrandom,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
];
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[i64] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_signalfd,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_rename,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_link,
    libc::SYS_unlink,
    libc::SYS_symlink,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_time,
    libc::SYS_alarm,
    libc::SYS_pause,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[];
#[cfg(target_arch = "x86_64")]
const MODES_HERE: &[i64] = &[libc::SYS_chmod, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const MODES_HERE: &[i64] = &[];
