//! The launcher: a small process with one thread that the house starts anew for each job, so that the size and the
//! threads of the house never matter. It makes the namespaces; its child, the init of the pid namespace, builds the root
//! and starts the job's process. Either end of the line to the house ends everything: whoever loses it kills the rest.

use super::child::{self, Handed};
use super::plan::{Mode, Note, Plan, REPORT_FD, Refused, Step};
use super::sys::{self, Forked};
use super::{inputs, root};
use crate::limits;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the house hands over with the plan, in this order; inputs follow.
pub const HANDED: usize = 5;

/// The hidden entry of the program. Its standard input is the line to the house.
pub fn main() -> ! {
    sys::reset_signals();
    let code = match launch() {
        Ok(()) => 0,
        Err(refused) => {
            tell(&Note::Refused(refused));
            1
        }
    };
    sys::exit_now(code)
}

fn launch() -> Result<(), Refused> {
    let fault = |what: &'static str| Refused::io("launcher", what);
    sys::close_from(REPORT_FD).map_err(fault("close_range"))?;
    let first = sys::receive(sys::standing(0), 64).map_err(fault("plan"))?;
    let mut handed = Vec::new();
    for fd in first.fds {
        handed.push(sys::move_up(fd, HANDED_LOW).map_err(fault("descriptors of the plan"))?);
    }
    if handed.len() < HANDED {
        return Err(Refused::new("launcher", "the plan did not come whole"));
    }
    let inputs = handed.split_off(HANDED);
    let [plan, report, stdout, stderr, slot]: [OwnedFd; HANDED] =
        handed.try_into().map_err(|_| Refused::new("launcher", "the plan did not come whole"))?;
    let mut text = Vec::new();
    File::from(plan).read_to_end(&mut text).map_err(fault("plan"))?;
    let plan: Plan = serde_json::from_slice(&text).map_err(|e| Refused::new("launcher", e.to_string()))?;
    if plan.without.is_some() && !cfg!(debug_assertions) {
        return Err(Refused::new("launcher", "this build leaves out no step"));
    }

    let group = plan.born_in.as_ref().map(File::open).transpose().map_err(Refused::io("processes.group", "group"))?;
    let group = group.filter(|_| plan.keeps(Step::JoinGroups));
    let doors = group_doors(&plan)?;
    let (gate, release) = sys::pipe().map_err(fault("gate"))?;
    let (life, held) = sys::pipe().map_err(fault("life line"))?;
    let own_mounts = namespace("mnt");
    let forked = sys::clone3(flags(&plan), group.as_ref().map(AsFd::as_fd)).map_err(|e| {
        let item = if plan.mode == Mode::RootWithoutUserNamespace { "namespace.pid" } else { "namespace.user" };
        Refused::new(item, format!("the kernel makes no namespaces: {e}"))
    })?;
    match forked {
        Forked::Child => {
            drop((release, held));
            let ends = Ends { report, stdout, stderr, life, gate, doors, slot };
            match init(&plan, ends, inputs, own_mounts) {
                Ok(()) => sys::exit_now(0),
                Err(note) => {
                    tell(&note);
                    sys::exit_now(1)
                }
            }
        }
        Forked::Parent { pid, pidfd } => {
            drop((report, stdout, stderr, inputs, gate, life, doors));
            let admitted =
                map_ids(&plan, pid).and_then(|()| sys::write(release.as_fd(), IDS_IN_PLACE).map_err(fault("gate")));
            drop(release);
            let ended = supervise(pid, &pidfd, admitted.is_err());
            drop(held);
            tidy(&plan);
            // Nobody of the job is left; until here the slot was taken, whatever became of the house.
            drop(slot);
            admitted.and(ended)
        }
    }
}

/// Descriptors of the init.
struct Ends {
    report: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// Ends when the launcher's first process does.
    life: OwnedFd,
    /// Says when ids are in place.
    gate: OwnedFd,
    /// Through which the init enters the groups of the job.
    doors: Vec<OwnedFd>,
    /// Keeps the slot taken.
    slot: OwnedFd,
}

fn flags(plan: &Plan) -> u64 {
    let steps = [
        ("user", Step::UserNamespace),
        ("pid", Step::PidNamespace),
        ("mnt", Step::MountNamespace),
        ("net", Step::NetNamespace),
        ("ipc", Step::IpcNamespace),
        ("uts", Step::UtsNamespace),
    ];
    steps
        .iter()
        .filter(|(_, step)| plan.keeps(*step))
        .filter(|(name, _)| *name != "user" || plan.mode != Mode::RootWithoutUserNamespace)
        .filter_map(|(name, _)| sys::NAMESPACES.iter().find(|(known, _)| known == name))
        .fold(0, |flags, (_, flag)| flags | flag)
}

/// Ids of the init, which waits until they are in place.
fn map_ids(plan: &Plan, pid: i32) -> Result<(), Refused> {
    let at = |name: &str| format!("/proc/{pid}/{name}");
    let write = |name: &str, text: String| {
        fs::write(at(name), text).map_err(|e| Refused::new("namespace.user", format!("{name}: {e}")))
    };
    let inner = plan.inner_id();
    match plan.mode {
        _ if !plan.keeps(Step::UserNamespace) => {}
        Mode::RootWithoutUserNamespace => {}
        Mode::Root => {
            write("uid_map", format!("0 {} 1\n{inner} {} 1\n", plan.outer_root, plan.outer_job))?;
            write("gid_map", format!("0 {} 1\n{inner} {} 1\n", plan.outer_root, plan.outer_gid))?;
        }
        Mode::User => {
            write("setgroups", "deny".to_owned())?;
            write("uid_map", format!("{inner} {} 1\n", plan.outer_job))?;
            write("gid_map", format!("{inner} {} 1\n", plan.outer_gid))?;
        }
    }
    Ok(())
}

/// Groups of version 1, opened by whoever may enter them. Moving another process there waits for the whole kernel; a
/// thread that moves itself does not.
fn group_doors(plan: &Plan) -> Result<Vec<OwnedFd>, Refused> {
    let open = |group: &std::path::PathBuf| {
        let door = fs::OpenOptions::new().write(true).open(group.join("tasks")).map(OwnedFd::from);
        door.map_err(|e| Refused::new("memory.group", format!("{}: {e}", group.display())))
    };
    plan.joins.iter().filter(|_| plan.keeps(Step::JoinGroups)).map(open).collect()
}

/// Waits for the init's end. Any word on the line, and its end, is the order to kill.
fn supervise(pid: i32, pidfd: &OwnedFd, kill: bool) -> Result<(), Refused> {
    let mut listening = !kill;
    if kill {
        let _ = sys::kill_pidfd(pidfd.as_fd());
    }
    loop {
        let fds: Vec<RawFd> = if listening { vec![pidfd.as_raw_fd(), 0] } else { vec![pidfd.as_raw_fd()] };
        let ready = sys::poll(&fds, None).map_err(Refused::io("launcher", "poll"))?;
        if ready.first() == Some(&true) {
            return sys::wait(pid, true).map(drop).map_err(Refused::io("launcher", "wait"));
        }
        if ready.get(1) == Some(&true) {
            let _ = sys::kill_pidfd(pidfd.as_fd());
            listening = false;
        }
    }
}

/// The groups of a tree that is gone. The house does the same; whoever is left does it.
fn tidy(plan: &Plan) {
    let orphaned = sys::poll(&[0], Some(0)).is_ok_and(|ready| ready.first() == Some(&true));
    if orphaned {
        for group in plan.born_in.iter().chain(&plan.joins) {
            let _ = fs::remove_dir(group);
        }
    }
}

fn init(plan: &Plan, ends: Ends, files: Vec<OwnedFd>, outer_mounts: u64) -> Result<(), Note> {
    let refused = |item: &'static str, what: &'static str| move |e| Note::Refused(Refused::io(item, what)(e));
    let mut gate = File::from(ends.gate);
    let mut word = [0u8; 1];
    if gate.read(&mut word).map_err(refused("launcher", "gate"))? == 0 {
        return Ok(());
    }
    // Counted from here on: what is built and placed, and whoever is started.
    for door in &ends.doors {
        sys::write(door.as_fd(), ONESELF).map_err(refused("memory.group", "tasks"))?;
    }
    drop(ends.doors);
    if sys::session().1 != 1 {
        return Err(Note::Refused(Refused::new("namespace.pid", "the init is not the first process of its namespace")));
    }
    if namespace("mnt") == outer_mounts {
        return Err(Note::Refused(Refused::new("namespace.mnt", "the init shares the mounts of the house")));
    }
    match plan.mode {
        Mode::Root if plan.keeps(Step::UserNamespace) => {
            sys::drop_groups().map_err(refused("ids", "setgroups"))?;
            sys::become_user(0, 0).map_err(refused("ids", "setresuid"))?;
            sys::prctl(libc::PR_SET_DUMPABLE, 1).map_err(refused("ids", "PR_SET_DUMPABLE"))?;
        }
        Mode::Root | Mode::RootWithoutUserNamespace => sys::drop_groups().map_err(refused("ids", "setgroups"))?,
        Mode::User => {}
    }
    sys::umask(0o022);
    let marks = root::marks();
    let before = marks.before();
    let trees = root::build(plan).map_err(Note::Refused)?;
    let left = marks.left().into_iter().map(str::to_owned).collect();
    if plan.keeps(Step::CgroupNamespace) {
        sys::unshare(libc::CLONE_NEWCGROUP as u64).map_err(refused("namespace.cgroup", "unshare"))?;
    }
    let inputs = inputs::place(plan, files)?;
    root::close(plan).map_err(Note::Refused)?;

    let signals = sys::init_signals().map_err(refused("launcher", "signalfd"))?;
    let (report, stdout, stderr) = (ends.report.into_raw_fd(), ends.stdout.into_raw_fd(), ends.stderr.into_raw_fd());
    let job = sys::fork().map_err(refused("processes", "fork"))?;
    if job == 0 {
        sys::unblock_signals();
        child::run(plan, Handed { report, stdout, stderr, trees, inputs, marks: (before, left) });
    }
    for fd in [report, stdout, stderr] {
        // SAFETY: given up just above; this process has no other owner of them.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    // The job may not look into its init.
    sys::prctl(libc::PR_SET_DUMPABLE, 0).map_err(refused("ids", "PR_SET_DUMPABLE"))?;
    let ended = reap(job, &signals, &ends.life);
    // The kernel would do it too, but only after it has closed what keeps the slot taken.
    sys::end_all_others();
    drop(ends.slot);
    ended
}

/// Collects whoever ends, until the job's process does or a line to the outside is lost. Leaving ends all others.
fn reap(job: i32, signals: &OwnedFd, life: &OwnedFd) -> Result<(), Note> {
    let refused = |what: &'static str| move |e| Note::Refused(Refused::io("launcher", what)(e));
    let mut outside = None;
    let look = |outside: &mut Option<i32>| {
        let found = sys::signals_due(signals.as_fd()).into_iter().find(|signal| *signal != libc::SIGCHLD);
        *outside = outside.or(found);
    };
    loop {
        while let Some(ended) = sys::wait(-1, false).map_err(refused("wait"))? {
            if ended.pid == job {
                let cpu_ms = sys::children_cpu_ms().max(ended.cpu_ms);
                look(&mut outside);
                // Whoever signals a whole group needs a moment for all of it.
                if outside.is_none() && (ended.status & 0x7f == libc::SIGKILL || known(ended.status & 0x7f)) {
                    let _ = sys::poll(&[life.as_raw_fd(), 0], Some(limits::JOB_OUTSIDE_MS));
                    look(&mut outside);
                }
                tell(&Note::Ended { status: ended.status, cpu_ms, peak_kib: ended.peak_kib, outside });
                return Ok(());
            }
        }
        let ready = sys::poll(&[signals.as_raw_fd(), life.as_raw_fd(), 0], None).map_err(refused("poll"))?;
        if ready.iter().skip(1).any(|lost| *lost) {
            return Ok(());
        }
        look(&mut outside);
    }
}

fn known(signal: i32) -> bool {
    sys::FROM_OUTSIDE.contains(&signal)
}

fn tell(note: &Note) {
    let mut bytes = serde_json::to_vec(note).unwrap_or_default();
    bytes.truncate(limits::JOB_NOTE_BYTES_MAX);
    let _ = sys::send(sys::standing(0), &bytes, &[]);
}

/// The number by which the kernel knows a namespace of this process; 0 if it does not say.
fn namespace(name: &str) -> u64 {
    fs::metadata(Path::new("/proc/self/ns").join(name)).map_or(0, |found| found.ino())
}

const IDS_IN_PLACE: &[u8] = b"i";
/// How a thread names itself to a group.
const ONESELF: &[u8] = b"0";
/// Above the numbers that descriptors are placed at.
const HANDED_LOW: RawFd = 64;
