//! One run of a job, seen from the house: start the launcher, witness, give the word, read output up to its caps, end the
//! tree whatever happens, count who is left, and state as facts only what was read back.
//!
//! It blocks; the house calls it from a thread of its own. There is no other way to run a job than this one.

use super::child::GO;
use super::group::{Backend, Groups, Stalls, Usage};
use super::plan::{Mode, Note, Plan, PlannedInput, Proof, Refused, Step};
use super::witness::{self, Witness};
use super::{Job, JobReport, Slot, Source, Stream, facts, sys};
use crate::limits;
use crate::probe::exit_0::JobEnd;
use crate::probe::observation::Cause;
use crate::wire::Sha256;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Runs the job in the calling thread. `stop` ends it as soon as it can be read.
pub fn run_here(job: &Job, slot: &Slot, stop: Option<BorrowedFd<'_>>, without: Option<Step>) -> JobReport {
    let root = sys::ids().0 == 0;
    let first = if root { Mode::Root } else { Mode::User };
    let report = attempt(job, slot, stop, first, without);
    // As root the other protections can stand without a user namespace, and then prove it; it is declared.
    let no_user_namespace =
        matches!(&report.end, JobEnd::Unenforced { mechanism, .. } if mechanism == "namespace.user");
    if root && no_user_namespace && without.is_none() && !job.policy.required.contains("namespace.user") {
        return attempt(job, slot, stop, Mode::RootWithoutUserNamespace, None);
    }
    report
}

/// Names the program whose hidden entry is the launcher, where that is not the running one.
pub fn set_launcher(path: PathBuf) {
    if let Ok(mut known) = LAUNCHER.lock() {
        *known = Some(path);
    }
}

/// Everything that a run came to, for the facts.
pub struct Run<'a> {
    pub job: &'a Job,
    pub plan: &'a Plan,
    pub backend: Backend,
    pub missing: &'a [String],
    pub launcher: Option<Sha256>,
    pub proof: Option<&'a Proof>,
    pub witness: Option<&'a Witness>,
    pub started: bool,
    pub usage: Usage,
    pub survivors: usize,
    pub report: &'a JobReport,
}

struct Launcher {
    file: File,
    sha256: Sha256,
    id: (u64, u64),
}

/// Why the house ended the tree.
#[derive(Clone, Debug, PartialEq)]
enum Stop {
    Wall,
    Within(u64),
    Output,
    Cancelled,
    Refused(Refused),
    Slow,
}

#[derive(Default)]
struct Watched {
    proof: Option<Box<Proof>>,
    witness: Option<Witness>,
    go_at: Option<Instant>,
    /// The report's line ended without a word after "go": the program was executed.
    executed: bool,
    not_started: Option<Note>,
    ended: Option<(i32, u64, u64)>,
    /// A signal that the whole tree got from outside.
    outside: Option<i32>,
    /// Of the host, when the job was let go.
    stalls: Stalls,
    stop: Option<Stop>,
    finished_at: Option<Instant>,
}

struct Capture {
    from: Option<OwnedFd>,
    cap: usize,
    kept: Vec<u8>,
    total: u64,
}

fn attempt(job: &Job, slot: &Slot, stop: Option<BorrowedFd<'_>>, mode: Mode, without: Option<Step>) -> JobReport {
    let keeps = |step| without != Some(step);
    let mut groups = Groups::create(&job.policy, keeps(Step::MemoryLimit), keeps(Step::ProcessLimit));
    let plan = match plan(job, slot, mode, without, &groups) {
        Ok(plan) => plan,
        Err(refused) => return JobReport::refused(&refused, job),
    };
    let missing = groups.missing.clone();
    let mut watched = Watched::default();
    let mut captures = None;
    let mut gone = true;
    let mut launcher_hash = None;
    let marked = slot.begin().map_err(Refused::io("ids", "slot"));
    match marked.and_then(|()| start(job, &plan, slot)) {
        Ok(mut started) => {
            launcher_hash = Some(started.sha256);
            watch(job, &plan, &groups, stop, &mut started, &mut watched);
            let (left, is_gone) = finish(&groups, started);
            captures = Some(left);
            gone = is_gone;
        }
        Err(refused) => watched.stop = Some(Stop::Refused(refused)),
    }
    let usage = groups.usage(watched.stalls);
    let survivors = groups.end();
    if survivors == 0 && gone {
        // Left marked, the slot is looked at by whoever takes it next.
        let _ = slot.clear();
    }
    let [out, err] = captures.unwrap_or_else(|| [Capture::empty(), Capture::empty()]);
    let report = report(job, &watched, usage, [out, err]);
    let run = Run {
        job,
        plan: &plan,
        backend: groups.backend(),
        missing: &missing,
        launcher: launcher_hash,
        proof: watched.proof.as_deref(),
        witness: watched.witness.as_ref(),
        started: watched.executed,
        usage,
        survivors,
        report: &report,
    };
    let facts = facts::state(&run);
    JobReport { facts, survivors, ..report }
}

fn plan(job: &Job, slot: &Slot, mode: Mode, without: Option<Step>, groups: &Groups) -> Result<Plan, Refused> {
    let (uid, gid) = sys::ids();
    let (outer_root, outer_job, outer_gid) = match (mode, slot.ids()) {
        (Mode::User, _) => (uid, uid, gid),
        (_, Some((root, job))) => (root, job, job),
        (_, None) => return Err(Refused::new("ids", "this slot has no uid of its own")),
    };
    let required = |item: &str| job.policy.required.contains(item);
    let (memory_by_group, processes_by_group) = (groups.memory.is_some(), groups.processes.is_some());
    if let Some(item) = [("memory.group", memory_by_group), ("processes.group", processes_by_group)]
        .iter()
        .find(|(item, held)| required(item) && !held)
    {
        return Err(Refused::new(item.0, format!("no control group: {}", groups.missing.join("; "))));
    }
    if required("namespace.user") && mode == Mode::RootWithoutUserNamespace {
        return Err(Refused::new("namespace.user", "the policy demands it"));
    }
    let cpus = sys::processors().map_err(Refused::io("determinism", "sched_getaffinity"))?;
    let cpu = cpus.get(slot.number() as usize % cpus.len().max(1)).copied();
    let inputs = job.inputs.iter().map(|input| PlannedInput {
        path: input.path.clone(),
        sha256: input.sha256,
        unpack: input.unpack,
        mode: input.mode,
    });
    Ok(Plan {
        mode,
        policy: job.policy.clone(),
        argv: job.argv.clone(),
        inputs: inputs.collect(),
        outer_root,
        outer_job,
        outer_gid,
        born_in: groups.tree.clone(),
        joins: groups.joins(),
        memory_by_group,
        processes_by_group,
        cpu: cpu.ok_or_else(|| Refused::new("determinism", "no processor"))?,
        without,
    })
}

struct Started {
    child: Child,
    line: OwnedFd,
    report: OwnedFd,
    captures: [Capture; 2],
    sha256: Sha256,
    id: (u64, u64),
}

fn start(job: &Job, plan: &Plan, slot: &Slot) -> Result<Started, Refused> {
    let fault = |what: &'static str| Refused::io("launcher", what);
    let launcher = launcher()?;
    let (line, far_line) = sys::socket_pair().map_err(fault("line"))?;
    let (report, far_report) = sys::socket_pair().map_err(fault("report"))?;
    sys::want_sender(report.as_fd()).map_err(fault("report"))?;
    let (out, far_out) = sys::pipe().map_err(fault("pipe"))?;
    let (err, far_err) = sys::pipe().map_err(fault("pipe"))?;
    for end in [&out, &err] {
        sys::set_nonblocking(end.as_fd()).map_err(fault("pipe"))?;
    }
    let text = serde_json::to_vec(plan).map_err(|e| Refused::new("launcher", e.to_string()))?;
    let text = sys::sealed_memory(&text).map_err(fault("plan"))?;
    let held = slot.hold().map_err(fault("slot"))?;
    let mut handed = vec![text, far_report, far_out, far_err, held];
    for input in &job.inputs {
        let opened = match &input.source {
            Source::Bytes(bytes) => sys::sealed_memory(bytes),
            Source::File(path) => File::open(path).map(OwnedFd::from),
        };
        handed.push(opened.map_err(|e| Refused::new("inputs", format!("{}: {e}", input.path)))?);
    }
    let child = Command::new(format!("/proc/self/fd/{}", launcher.file.as_raw_fd()))
        .arg(ENTRY)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(far_line))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(fault("start"))?;
    let raw: Vec<RawFd> = handed.iter().map(AsRawFd::as_raw_fd).collect();
    let capture = |fd, cap: u64| Capture { from: Some(fd), cap: cap as usize, kept: Vec::new(), total: 0 };
    let captures = [capture(out, job.policy.stdout_bytes), capture(err, job.policy.stderr_bytes)];
    let started = Started { child, line, report, captures, sha256: launcher.sha256, id: launcher.id };
    sys::send(started.line.as_fd(), b"plan", &raw).map_err(fault("plan"))?;
    Ok(started)
}

/// Follows the run until the launcher is gone.
fn watch(
    job: &Job,
    plan: &Plan,
    groups: &Groups,
    stop: Option<BorrowedFd<'_>>,
    started: &mut Started,
    seen: &mut Watched,
) {
    let wall = Duration::from_secs(job.within_s.unwrap_or(u64::MAX).min(job.policy.wall_s));
    let mut deadline = Instant::now() + Duration::from_millis(limits::JOB_PREPARE_MS);
    let mut reporting = true;
    let mut listening = stop;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let due = left.is_zero();
        if due && (seen.stop.is_some() || seen.ended.is_some() || seen.finished_at.is_some()) {
            return;
        }
        let gone = -1;
        let fds = [
            started.line.as_raw_fd(),
            if reporting { started.report.as_raw_fd() } else { gone },
            started.captures[0].from.as_ref().map_or(gone, AsRawFd::as_raw_fd),
            started.captures[1].from.as_ref().map_or(gone, AsRawFd::as_raw_fd),
            listening.map_or(gone, |fd| fd.as_raw_fd()),
        ];
        // Rounded up: a poll that ends a fraction early would spin.
        let timeout = if due { 0 } else { left.as_millis() as u64 + 1 };
        let Ok(ready) = sys::poll(&fds, Some(timeout)) else { return };
        let is = |at: usize| ready.get(at) == Some(&true);
        // An end that came in time and waits to be read is in time, however late this thread woke.
        if due && !is(0) {
            let why = match (seen.go_at, job.within_s) {
                (None, _) => Stop::Slow,
                (Some(_), Some(within)) if within <= job.policy.wall_s => Stop::Within(within),
                (Some(_), _) => Stop::Wall,
            };
            deadline = end_tree(groups, started, seen, why);
        }
        for at in [0, 1] {
            if is(at + 2) && !started.captures[at].read() && seen.stop.is_none() {
                deadline = end_tree(groups, started, seen, Stop::Output);
            }
        }
        if is(1) {
            match sys::receive(started.report.as_fd(), limits::JOB_NOTE_BYTES_MAX) {
                Ok(got) if !got.bytes.is_empty() => match serde_json::from_slice(&got.bytes) {
                    Ok(Note::Proof(proof)) if seen.proof.is_none() => {
                        let looked = witness::look(plan, groups, got.sender.unwrap_or(0), started.id);
                        seen.proof = Some(proof);
                        match looked {
                            Ok(witness) if seen.stop.is_none() => {
                                seen.witness = Some(witness);
                                let now = Instant::now();
                                seen.go_at = Some(now);
                                deadline = now + wall;
                                seen.stalls = Stalls::now();
                                let _ = sys::send(started.report.as_fd(), GO, &[]);
                            }
                            Ok(_) => {}
                            Err(refused) => deadline = end_tree(groups, started, seen, Stop::Refused(refused)),
                        }
                    }
                    Ok(note) => {
                        seen.not_started.get_or_insert(note);
                        reporting = false;
                    }
                    Err(_) => {
                        deadline =
                            end_tree(groups, started, seen, Stop::Refused(Refused::new("report", "it cannot be read")))
                    }
                },
                _ => {
                    reporting = false;
                    seen.executed = seen.go_at.is_some() && seen.not_started.is_none();
                }
            }
        }
        if is(4) && seen.stop.is_none() {
            listening = None;
            deadline = end_tree(groups, started, seen, Stop::Cancelled);
        }
        if is(0) {
            match sys::receive(started.line.as_fd(), limits::JOB_NOTE_BYTES_MAX) {
                Ok(got) if !got.bytes.is_empty() => match serde_json::from_slice(&got.bytes) {
                    Ok(Note::Ended { status, cpu_ms, peak_kib, outside }) => {
                        seen.ended = Some((status, cpu_ms, peak_kib));
                        seen.outside = outside;
                        seen.finished_at = Some(Instant::now());
                        if seen.stop.is_none() {
                            deadline = Instant::now() + Duration::from_millis(limits::JOB_END_MS);
                        }
                    }
                    Ok(note) => {
                        seen.not_started.get_or_insert(note);
                    }
                    Err(_) => {}
                },
                _ => {
                    seen.finished_at.get_or_insert_with(Instant::now);
                    // The report's last word may still wait to be read.
                    if reporting {
                        last_word(started, seen);
                    }
                    return;
                }
            }
        }
    }
}

fn last_word(started: &Started, seen: &mut Watched) {
    while sys::poll(&[started.report.as_raw_fd()], Some(0)).is_ok_and(|ready| ready.first() == Some(&true)) {
        match sys::receive(started.report.as_fd(), limits::JOB_NOTE_BYTES_MAX) {
            Ok(got) if !got.bytes.is_empty() => {
                let note = serde_json::from_slice::<Note>(&got.bytes).ok();
                if let Some(note) = note.filter(|note| !matches!(note, Note::Proof(_))) {
                    seen.not_started.get_or_insert(note);
                }
            }
            _ => {
                seen.executed = seen.go_at.is_some() && seen.not_started.is_none();
                return;
            }
        }
    }
}

/// Orders the end by every way there is, and gives the time by which the tree must be gone.
fn end_tree(groups: &Groups, started: &Started, seen: &mut Watched, why: Stop) -> Instant {
    seen.stop.get_or_insert(why);
    seen.finished_at.get_or_insert_with(Instant::now);
    groups.kill();
    let _ = sys::send(started.line.as_fd(), b"end", &[]);
    Instant::now() + Duration::from_millis(limits::JOB_END_MS)
}

/// The launcher is gone or is made to go; then what is left in the pipes is read, without waiting for anybody.
fn finish(groups: &Groups, mut started: Started) -> ([Capture; 2], bool) {
    groups.kill();
    let _ = sys::send(started.line.as_fd(), b"end", &[]);
    drop(started.line);
    let until = Instant::now() + Duration::from_millis(limits::JOB_END_MS);
    let mut pause = Duration::from_micros(50);
    let mut gone = true;
    while !matches!(started.child.try_wait(), Ok(Some(_))) {
        if Instant::now() > until {
            let _ = started.child.kill();
            let _ = started.child.wait();
            gone = false;
            break;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    let until = Instant::now() + Duration::from_millis(limits::JOB_DRAIN_MS);
    for capture in &mut started.captures {
        while let Some(fd) = capture.from.as_ref().map(AsRawFd::as_raw_fd) {
            let left = until.saturating_duration_since(Instant::now()).as_millis() as u64;
            let ready = sys::poll(&[fd], Some(left)).is_ok_and(|ready| ready.first() == Some(&true));
            if !ready || !capture.read() {
                break;
            }
        }
    }
    (started.captures, gone)
}

fn report(job: &Job, seen: &Watched, usage: Usage, [out, err]: [Capture; 2]) -> JobReport {
    let cpu_ms = usage.cpu_ms.or(seen.ended.map(|(_, cpu, _)| cpu));
    let end = end(job, seen, usage, cpu_ms, &[&out, &err]);
    let wall = seen.go_at.zip(seen.finished_at).map(|(from, to)| to.saturating_duration_since(from).as_millis() as u64);
    JobReport {
        end,
        started: seen.executed,
        peak_memory: usage.memory_peak.or(seen.ended.map(|(_, _, kib)| kib * 1_024)),
        cpu_ms,
        wall_ms: wall.unwrap_or(0),
        stdout: out.stream(),
        stderr: err.stream(),
        survivors: 0,
        facts: serde_json::Value::Null,
    }
}

fn end(job: &Job, seen: &Watched, usage: Usage, cpu_ms: Option<u64>, outputs: &[&Capture]) -> JobEnd {
    let refused = |r: &Refused| JobEnd::Unenforced { mechanism: r.item.clone(), reason: r.reason.clone() };
    let limit = |name: &str| JobEnd::Limit { limit: name.to_owned() };
    let ours = |reason: &str| JobEnd::Unavailable { cause: Cause::Ours, reason: reason.to_owned() };
    let host = |reason: &str| JobEnd::Unavailable { cause: Cause::Host, reason: reason.to_owned() };
    let memory =
        || if usage.memory_own { limit("memory") } else { host("the host was short of memory during the run") };
    if let Some(Stop::Refused(r)) = &seen.stop {
        return refused(r);
    }
    match &seen.not_started {
        Some(Note::Refused(r)) => return refused(r),
        Some(Note::NotExecutable { reason }) => return JobEnd::NotExecutable { reason: reason.clone() },
        Some(Note::Archive { path, reason }) => {
            return JobEnd::ArchiveRefused { path: path.clone(), reason: reason.clone() };
        }
        Some(Note::Input { path, reason }) => {
            return JobEnd::Unavailable { cause: Cause::Origin, reason: format!("the input {path} {reason}") };
        }
        Some(Note::Proof(_) | Note::Ended { .. }) | None => {}
    }
    // What was printed decides by its length alone, so the order of an end and a read never matters.
    let overflow = outputs.iter().any(|capture| capture.total > capture.cap as u64);
    match &seen.stop {
        Some(Stop::Cancelled) => return ours("the run was cancelled"),
        Some(Stop::Slow) => {
            return JobEnd::Unavailable { cause: Cause::Host, reason: "the sandbox was not ready in time".to_owned() };
        }
        _ if overflow && seen.executed => return limit("output"),
        Some(Stop::Wall) => return JobEnd::Time { limit: "wall".to_owned() },
        Some(Stop::Within(seconds)) => return JobEnd::Within { seconds: *seconds },
        _ => {}
    }
    let Some((status, rusage_ms, _)) = seen.ended.filter(|_| seen.executed) else {
        if usage.oom_kills > 0 && seen.executed {
            return memory();
        }
        return match seen.ended {
            Some((status, _, _)) => {
                ours(&format!("the launcher's process ended with status {status:#x} before its proof"))
            }
            None => ours("the launcher ended without a word"),
        };
    };
    let (code, signal) = (status >> 8 & 0xff, status & 0x7f);
    if signal == 0 && code == 0 {
        return JobEnd::Code { code: 0 };
    }
    if let Some(signal) = seen.outside {
        return host(&format!("somebody outside sent the whole tree signal {signal}"));
    }
    if usage.oom_kills > 0 {
        return memory();
    }
    // How long a processor takes is the host's doing, whichever process of the tree was stopped for it. The kernel stops by
    // its ticks, which differ from what it counts; the doubt is never the seller's. A limit above the wall, with one
    // processor, is out of reach.
    let most = cpu_ms.unwrap_or(0).max(rusage_ms);
    let near = |percent: u64| most * 100 >= job.policy.cpu_s * 1_000 * percent;
    let stopped = matches!(signal, libc::SIGKILL | libc::SIGXCPU);
    if (stopped && near(CPU_STOPPED_PERCENT)) || (job.policy.cpu_s <= job.policy.wall_s && near(CPU_NEAR_PERCENT)) {
        return JobEnd::Time { limit: "cpu".to_owned() };
    }
    if usage.processes_refused > 0 {
        return if usage.processes_own {
            limit("processes")
        } else {
            host("the host had no room for another process during the run")
        };
    }
    match signal {
        0 => JobEnd::Code { code },
        libc::SIGXFSZ => limit("file size"),
        signal => JobEnd::Signal { signal },
    }
}

impl Capture {
    fn empty() -> Capture {
        Capture { from: None, cap: 0, kept: Vec::new(), total: 0 }
    }

    /// Reads what is there. False when there is more than the cap; nothing further is read then.
    fn read(&mut self) -> bool {
        let Some(fd) = &self.from else { return true };
        match sys::read_some(fd.as_fd()) {
            None => {}
            Some(bytes) if bytes.is_empty() => self.from = None,
            Some(bytes) => {
                self.total = (self.total + bytes.len() as u64).min(self.cap as u64 + 1);
                let room = self.cap - self.kept.len();
                self.kept.extend_from_slice(bytes.get(..bytes.len().min(room)).unwrap_or_default());
            }
        }
        if self.total > self.cap as u64 {
            self.from = None;
            return false;
        }
        true
    }

    fn stream(self) -> Stream {
        let from = self.kept.len().saturating_sub(limits::JOB_TAIL_BYTES);
        Stream {
            bytes: self.kept.len() as u64,
            truncated: self.total > self.cap as u64,
            sha256: Sha256::of(&self.kept),
            tail: String::from_utf8_lossy(self.kept.get(from..).unwrap_or_default()).into_owned(),
        }
    }
}

struct Known {
    file: File,
    sha256: Sha256,
}

/// The program that is started: opened and hashed once, so that it is the hashed file that runs.
fn launcher() -> Result<Launcher, Refused> {
    static KNOWN: OnceLock<Mutex<Vec<(PathBuf, Known)>>> = OnceLock::new();
    let fault = |e: io::Error| Refused::new("launcher", format!("the program cannot be read: {e}"));
    let own = || PathBuf::from("/proc/self/exe");
    let path = LAUNCHER.lock().ok().and_then(|path| path.clone()).unwrap_or_else(own);
    let mut known =
        KNOWN.get_or_init(Mutex::default).lock().map_err(|_| Refused::new("launcher", "a lock is broken"))?;
    if !known.iter().any(|(p, _)| *p == path) {
        let mut file = File::open(&path).map_err(fault)?;
        let sha256 = hash(&mut file).map_err(fault)?;
        known.push((path.clone(), Known { file, sha256 }));
    }
    let found = known.iter().find(|(p, _)| *p == path).map(|(_, known)| known);
    let found = found.ok_or_else(|| Refused::new("launcher", "the program is not known"))?;
    let file = found.file.try_clone().map_err(fault)?;
    let meta = file.metadata().map_err(fault)?;
    Ok(Launcher { file, sha256: found.sha256, id: (meta.dev(), meta.ino()) })
}

fn hash(file: &mut File) -> io::Result<Sha256> {
    use sha2::Digest;
    use std::io::Read;
    let mut digest = sha2::Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        let got = file.read(&mut buffer)?;
        if got == 0 {
            return Ok(Sha256(digest.finalize().into()));
        }
        digest.update(buffer.get(..got).unwrap_or_default());
    }
}

/// The hidden argument by which the program becomes the launcher.
pub const ENTRY: &str = "__sandbox";
static LAUNCHER: Mutex<Option<PathBuf>> = Mutex::new(None);
/// Of the limit: from here on a process that was killed may have been killed for it, and one that fails, for a child's.
const CPU_STOPPED_PERCENT: u64 = 50;
const CPU_NEAR_PERCENT: u64 = 90;
