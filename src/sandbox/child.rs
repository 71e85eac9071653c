//! The job's process from its birth to the first instruction of the job: it puts every restriction on itself in order,
//! shows by canaries that each holds, reports, waits for the word of the house, and executes a file that is already open
//! and hashed. The first step that fails ends it; nothing is ever left out and gone on without.

use super::canary::{self, Canary, Outsider};
use super::plan::{Executed, HOST_NAME, InputFacts, JOB_UMASK, Mode, Note, Plan, Proof, REPORT_FD, Refused, Step};
use super::{restrict, sys};
use crate::limits;
use crate::wire::Sha256;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// What the init hands to the job's process.
pub struct Handed {
    /// Open descriptors, well above those that they will be placed at.
    pub report: RawFd,
    pub stdout: RawFd,
    pub stderr: RawFd,
    pub trees: Vec<String>,
    pub inputs: Vec<InputFacts>,
    /// Host paths that were in sight before the root changed, and those still in sight.
    pub marks: (usize, Vec<String>),
}

/// Never returns: the job's process ends here or becomes the job.
pub fn run(plan: &Plan, handed: Handed) -> ! {
    if let Err(note) = prepare(plan, handed) {
        report(&note);
    }
    sys::exit_now(127)
}

struct Program {
    file: File,
    argv: Vec<CString>,
    executed: Vec<Executed>,
}

fn prepare(plan: &Plan, handed: Handed) -> Result<(), Note> {
    descriptors(plan, &handed).map_err(Note::Refused)?;
    let Handed { trees, inputs, marks, .. } = handed;
    let program = program(plan)?;
    let (proof, envp) = restricted(plan, &trees, inputs, &marks, program.executed).map_err(Note::Refused)?;
    report(&Note::Proof(Box::new(proof)));
    // From here on the filter lets through no call but the plainest.
    if sys::read_some(sys::standing(REPORT_FD)).as_deref() != Some(GO) {
        sys::exit_now(126);
    }
    let error = sys::exec(program.file.as_fd(), &program.argv, &envp);
    Err(match sys::errno(&error) {
        libc::ENOEXEC | libc::EACCES | libc::ENOENT | libc::E2BIG | libc::ELIBBAD | libc::EINVAL => {
            Note::NotExecutable { reason: error.to_string() }
        }
        _ => Note::Refused(Refused::new("exec", error.to_string())),
    })
}

/// Standard descriptors, the report, and nothing else.
fn descriptors(plan: &Plan, handed: &Handed) -> Result<(), Refused> {
    let fault = |what: &'static str| Refused::io("descriptors", what);
    let (empty, writer) = sys::pipe().map_err(fault("standard input"))?;
    drop(writer);
    sys::place(empty.as_fd(), 0, false).map_err(fault("standard input"))?;
    sys::place(sys::standing(handed.stdout), 1, false).map_err(fault("standard output"))?;
    sys::place(sys::standing(handed.stderr), 2, false).map_err(fault("standard error"))?;
    sys::place(sys::standing(handed.report), REPORT_FD, true).map_err(fault("report"))?;
    drop(empty);
    if plan.keeps(Step::CloseDescriptors) {
        sys::close_from(REPORT_FD + 1).map_err(fault("close_range"))?;
    }
    Ok(())
}

/// Finds, opens and hashes what will be executed. A script is executed through its interpreter, which is hashed too.
fn program(plan: &Plan) -> Result<Program, Note> {
    std::env::set_current_dir("/work").map_err(Refused::io("root", "/work")).map_err(Note::Refused)?;
    let refused = |reason: String| Note::NotExecutable { reason };
    let mut argv: Vec<String> = plan.argv.clone();
    let first = argv.first().cloned().unwrap_or_default();
    let mut path = find(plan, &first).map_err(refused)?;
    let mut executed = Vec::new();
    for _ in 0..limits::INTERPRETER_DEPTH_MAX {
        let shown = crate::probe::text::quote(&path, PATH_CHARS);
        if path.starts_with("/proc/") || path.starts_with("/dev/") {
            return Err(refused(format!("{shown} is not a program file")));
        }
        let found = fs::metadata(&path).map_err(|e| refused(format!("{shown}: {e}")))?;
        if !found.is_file() {
            return Err(refused(format!("{shown} is not a file")));
        }
        if found.permissions().mode() & 0o111 == 0 {
            return Err(refused(format!("{shown} has no execute permission")));
        }
        let mut file = File::open(&path).map_err(|e| refused(format!("{shown}: {e}")))?;
        let (sha256, head) = hash(&mut file).map_err(|e| refused(format!("{shown}: {e}")))?;
        executed.push(Executed { path: path.clone(), sha256 });
        let Some(line) = head.strip_prefix(b"#!") else {
            let argv = argv.iter().map(|word| sys::c_string(word)).collect::<io::Result<Vec<_>>>();
            let argv = argv.map_err(|_| refused("an argument has a NUL".to_owned()))?;
            return Ok(Program { file, argv, executed });
        };
        let end = line
            .iter()
            .position(|b| *b == b'\n')
            .ok_or_else(|| refused(format!("{shown}: its first line is too long")))?;
        let line = String::from_utf8_lossy(line.get(..end).unwrap_or_default()).into_owned();
        let line = line.trim_matches([' ', '\t']);
        let (interpreter, option) =
            line.split_once([' ', '\t']).map_or((line, ""), |(i, o)| (i, o.trim_matches([' ', '\t'])));
        if interpreter.is_empty() {
            return Err(refused(format!("{shown}: its first line names no interpreter")));
        }
        let mut next = vec![interpreter.to_owned()];
        if !option.is_empty() {
            next.push(option.to_owned());
        }
        next.push(path);
        next.extend(argv.into_iter().skip(1));
        argv = next;
        path = absolute(interpreter);
    }
    Err(refused("interpreters name each other too deeply".to_owned()))
}

fn find(plan: &Plan, name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err("the program has no name".to_owned());
    }
    if name.contains('/') {
        return Ok(absolute(name));
    }
    let path = plan.policy.environment.get("PATH").map(String::as_str).unwrap_or_default();
    path.split(':')
        .filter(|folder| folder.starts_with('/'))
        .map(|folder| format!("{folder}/{name}"))
        .find(|path| fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0))
        .ok_or_else(|| format!("{} is not found in {path}", crate::probe::text::quote(name, PATH_CHARS)))
}

fn absolute(name: &str) -> String {
    if name.starts_with('/') { name.to_owned() } else { format!("/work/{}", name.trim_start_matches("./")) }
}

/// The hash of a whole file and its first bytes.
fn hash(file: &mut File) -> io::Result<(Sha256, Vec<u8>)> {
    use sha2::Digest;
    let mut digest = sha2::Sha256::new();
    let mut head = Vec::new();
    let mut buffer = vec![0u8; 65_536];
    loop {
        let got = file.read(&mut buffer)?;
        let bytes = buffer.get(..got).unwrap_or_default();
        if got == 0 {
            break;
        }
        if head.is_empty() {
            head = bytes.get(..bytes.len().min(limits::INTERPRETER_LINE_MAX)).unwrap_or_default().to_vec();
        }
        digest.update(bytes);
    }
    file.rewind()?;
    Ok((Sha256(digest.finalize().into()), head))
}

fn restricted(
    plan: &Plan,
    trees: &[String],
    inputs: Vec<InputFacts>,
    marks: &(usize, Vec<String>),
    executed: Vec<Executed>,
) -> Result<(Proof, Vec<CString>), Refused> {
    let policy = &plan.policy;
    let mut canaries = Vec::new();
    canaries.push(Canary::fact(
        "root.host_paths",
        "root",
        format!("{} in sight", marks.0),
        if marks.1.is_empty() { "none in sight".to_owned() } else { marks.1.join(" ") },
        marks.0 > 0 && marks.1.is_empty(),
    ));
    for tree in trees.iter().filter(|tree| Path::new(tree).is_dir()) {
        let after = canary::make_folder(tree);
        canaries.push(Canary::fact("root.read_only", "root", tree.clone(), canary::name(after), after == libc::EROFS));
    }
    let after = canary::make_folder("/dev");
    canaries.push(Canary::fact("root.closed", "root", "/dev".to_owned(), canary::name(after), after == libc::EROFS));

    if plan.keeps(Step::Session) {
        sys::new_session().map_err(Refused::io("session", "setsid"))?;
    }
    let (session, own) = sys::session();
    let terminal = File::open("/dev/tty").err().map_or(0, |e| sys::errno(&e));
    canaries.push(Canary::fact("session.own", "session", own.to_string(), session.to_string(), session == own));
    canaries.push(Canary::fact("session.terminal", "session", String::new(), canary::name(terminal), terminal != 0));
    if plan.keeps(Step::Umask) {
        sys::umask(JOB_UMASK);
    }
    determinism(plan, &mut canaries)?;
    limits_set(plan, &mut canaries)?;
    open_descriptors(plan, &mut canaries)?;
    canary::objection(&canaries)?;
    let interfaces = interfaces().map_err(Refused::io("network", "interfaces"))?;
    let lonely = interfaces == ["lo"];
    canaries.push(Canary::fact("network.interfaces", "network", String::new(), interfaces.join(" "), lonely));

    canary::objection(&canaries)?;

    let id = plan.inner_id();
    if plan.keeps(Step::DropCapabilities) {
        sys::drop_bounding_set().map_err(Refused::io("capabilities", "bounding set"))?;
    }
    if plan.keeps(Step::DropUser) {
        sys::become_user(id, id).map_err(Refused::io("ids", "setresuid"))?;
    }
    if plan.keeps(Step::DropCapabilities) {
        sys::drop_capabilities().map_err(Refused::io("capabilities", "capset"))?;
    }
    only_process(plan, &mut canaries)?;
    // The house reads /proc of this process while it waits; the program that is executed sets this anew.
    sys::prctl(libc::PR_SET_DUMPABLE, 1).map_err(Refused::io("ids", "PR_SET_DUMPABLE"))?;
    if plan.keeps(Step::NoNewPrivs) {
        sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(Refused::io("no_new_privs", "prctl"))?;
    }
    let set = sys::prctl(libc::PR_GET_NO_NEW_PRIVS, 0).unwrap_or(0);
    canaries.push(Canary::fact("no_new_privs", "no_new_privs", "0".to_owned(), set.to_string(), set == 1));

    let personality = sys::personality(u32::MAX).map_err(Refused::io("determinism", "personality"))?;
    let status = File::open("/proc/self/status").map_err(Refused::io("root", "/proc/self/status"))?;
    let outsider = Outsider::start(REPORT_FD).map_err(Refused::io("processes", "fork"))?;
    let attempts = canary::landlock_attempts(outsider.pid).map_err(Refused::io("landlock", "canaries"))?;
    let before: Vec<i32> = attempts.iter().map(|attempt| attempt.try_it()).collect();
    let landlock = if plan.keeps(Step::Landlock) { Some(restrict::landlock(plan, trees)?) } else { None };
    for (attempt, before) in attempts.iter().zip(before) {
        canaries.push(Canary::judge(attempt, before, attempt.try_it()));
    }
    canary::objection(&canaries)?;
    let foreign_before = outsider.finish().map_err(Refused::io("processes", "wait"))?;

    let attempts = canary::seccomp_attempts(plan);
    let filters = restrict::filters(plan)?;
    let before: Vec<i32> = attempts.iter().map(|attempt| attempt.try_it()).collect();
    let seccomp = restrict::load(&filters)?;
    for (attempt, before) in attempts.iter().zip(before) {
        canaries.push(Canary::judge(attempt, before, attempt.try_it()));
    }
    if cfg!(target_arch = "x86_64") {
        let after = canary::foreign_child().map_err(Refused::io("seccomp", "fork"))?;
        let shown = |signal: i32| if signal == 0 { "done".to_owned() } else { format!("signal {signal}") };
        let ok = after == libc::SIGSYS;
        canaries.push(Canary::fact("seccomp.foreign_abi", "seccomp", shown(foreign_before), shown(after), ok));
    }
    sys::ignore_signal(libc::SIGXFSZ, false);
    canary::objection(&canaries)?;
    let landlock = landlock.ok_or_else(|| Refused::new("landlock", "no rules were applied"))?;
    let umask = sys::umask(0);
    sys::umask(umask);
    let proof = Proof {
        executed,
        canaries,
        landlock,
        seccomp,
        status: status_lines(&status).map_err(Refused::io("root", "/proc/self/status"))?,
        limits: limit_values().map_err(Refused::io("limits", "getrlimit"))?,
        hostname: sys::host_name(),
        umask,
        personality,
        processors: sys::processors().map_err(Refused::io("determinism", "sched_getaffinity"))?.len(),
        interfaces,
        inputs,
    };
    let envp = policy.environment.iter().map(|(name, value)| sys::c_string(&format!("{name}={value}")));
    let envp = envp.collect::<io::Result<Vec<_>>>().map_err(Refused::io("exec", "environment"))?;
    Ok((proof, envp))
}

fn determinism(plan: &Plan, canaries: &mut Vec<Canary>) -> Result<(), Refused> {
    let fault = |what: &'static str| Refused::io("determinism", what);
    if plan.keeps(Step::HostName) {
        sys::set_host_name(HOST_NAME).map_err(Refused::io("namespace.uts", "sethostname"))?;
    }
    if plan.keeps(Step::Affinity) {
        sys::run_on(plan.cpu).map_err(fault("sched_setaffinity"))?;
    }
    if plan.policy.fixed_addresses && plan.keeps(Step::FixedAddresses) {
        sys::personality(libc::ADDR_NO_RANDOMIZE as u32).map_err(fault("personality"))?;
    }
    if plan.keeps(Step::OomScore) {
        fs::write("/proc/self/oom_score_adj", "1000").map_err(Refused::io("memory", "oom_score_adj"))?;
    }
    let (want, seen) = (HOST_NAME.to_owned(), sys::host_name());
    let ok = want == seen;
    canaries.push(Canary::fact("determinism.hostname", "namespace.uts", want, seen, ok));
    if plan.policy.fixed_addresses {
        let seen = sys::personality(u32::MAX).map_err(fault("personality"))?;
        let ok = seen & libc::ADDR_NO_RANDOMIZE as u32 != 0;
        canaries.push(Canary::fact("determinism.addresses", "determinism", String::new(), format!("{seen:#x}"), ok));
    }
    Ok(())
}

fn limits_set(plan: &Plan, canaries: &mut Vec<Canary>) -> Result<(), Refused> {
    let policy = &plan.policy;
    sys::ignore_signal(libc::SIGXFSZ, true);
    let file_before = canary::grow(policy.file_bytes);
    let map_before = if plan.memory_by_group { 0 } else { canary::map(policy.memory_bytes) };
    let wanted = wanted_limits(plan);
    if plan.keeps(Step::Limits) {
        for (name, resource, value) in &wanted {
            sys::set_limit(*resource, *value).map_err(|e| Refused::new("limits", format!("{name}: {e}")))?;
        }
    }
    for (name, resource, value) in &wanted {
        let seen = sys::limit(*resource).map_err(Refused::io("limits", "getrlimit"))?;
        let ok = seen == (*value, *value);
        let id = format!("limits.{name}");
        canaries.push(Canary::fact(&id, "limits", value.to_string(), format!("{} {}", seen.0, seen.1), ok));
    }
    let after = canary::grow(policy.file_bytes);
    canaries.push(Canary::fact(
        "limits.file_size",
        "limits",
        canary::name(file_before),
        canary::name(after),
        file_before == 0 && after == libc::EFBIG,
    ));
    if !plan.memory_by_group {
        let after = canary::map(policy.memory_bytes);
        let ok = map_before == 0 && after == libc::ENOMEM;
        canaries.push(Canary::fact("limits.memory", "memory", canary::name(map_before), canary::name(after), ok));
    }
    Ok(())
}

/// Limits of a process. Memory and processes are here only where no control group counts them.
pub fn wanted_limits(plan: &Plan) -> Vec<(&'static str, u32, u64)> {
    let policy = &plan.policy;
    let mut out = vec![
        ("core", libc::RLIMIT_CORE, 0),
        ("nofile", libc::RLIMIT_NOFILE, policy.open_files),
        ("fsize", libc::RLIMIT_FSIZE, policy.file_bytes),
        ("cpu", libc::RLIMIT_CPU, policy.cpu_s),
        ("stack", libc::RLIMIT_STACK, STACK_BYTES),
        ("memlock", libc::RLIMIT_MEMLOCK, 0),
        ("msgqueue", libc::RLIMIT_MSGQUEUE, 0),
        ("nice", libc::RLIMIT_NICE, 0),
        ("rtprio", libc::RLIMIT_RTPRIO, 0),
        ("sigpending", libc::RLIMIT_SIGPENDING, SIGNALS),
    ];
    if !plan.processes_by_group {
        out.push(("nproc", libc::RLIMIT_NPROC, policy.processes));
    }
    if !plan.memory_by_group {
        out.push(("as", libc::RLIMIT_AS, policy.memory_bytes));
    }
    out
}

fn open_descriptors(plan: &Plan, canaries: &mut Vec<Canary>) -> Result<(), Refused> {
    let at_once = usize::try_from(plan.policy.open_files).unwrap_or(usize::MAX);
    let open = sys::open_among(REPORT_FD + 1..DESCRIPTORS_LOOKED, at_once);
    let open = open.map_err(Refused::io("descriptors", "poll"))?;
    let open: Vec<String> = open.iter().filter(|fd| **fd != PROGRAM_FD).map(RawFd::to_string).collect();
    let ok = open.is_empty();
    let seen = if ok { "none".to_owned() } else { open.join(" ") };
    canaries.push(Canary::fact("descriptors.none", "descriptors", String::new(), seen, ok));
    Ok(())
}

/// Nobody else counts under the job's user: the kernel refuses a process at the number of the job's own, and allows one
/// more than that.
fn only_process(plan: &Plan, canaries: &mut Vec<Canary>) -> Result<(), Refused> {
    let fault = |what: &'static str| Refused::io("ids", what);
    // As an ordinary user the init has the same user inside as the job.
    let own = if plan.mode == Mode::User { 2 } else { 1 };
    let soft = sys::limit(libc::RLIMIT_NPROC).map_err(fault("getrlimit"))?.0;
    let attempt = |most: u64| -> Result<i32, Refused> {
        sys::set_soft_limit(libc::RLIMIT_NPROC, most).map_err(fault("setrlimit"))?;
        match sys::fork() {
            Ok(0) => sys::exit_now(0),
            Ok(pid) => sys::wait(pid, true).map(|_| 0).map_err(fault("wait")),
            Err(e) => Ok(sys::errno(&e)),
        }
    };
    let (full, room) = (attempt(own)?, attempt(own + 1)?);
    sys::set_soft_limit(libc::RLIMIT_NPROC, soft).map_err(fault("setrlimit"))?;
    let ok = full == libc::EAGAIN && room == 0;
    canaries.push(Canary::fact("ids.alone", "ids", canary::name(full), canary::name(room), ok));
    canary::objection(canaries)
}

fn interfaces() -> io::Result<Vec<String>> {
    let text = fs::read_to_string("/proc/self/net/dev")?;
    Ok(text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect())
}

fn status_lines(status: &File) -> io::Result<Vec<(String, String)>> {
    let mut bytes = vec![0u8; 8_192];
    let got = status.read_at(&mut bytes, 0)?;
    bytes.truncate(got);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| STATUS_LINES.contains(name))
        .map(|(name, value)| (name.to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect())
}

fn limit_values() -> io::Result<Vec<(String, u64)>> {
    LIMITS_SHOWN.iter().map(|(name, resource)| Ok(((*name).to_owned(), sys::limit(*resource)?.0))).collect()
}

fn report(note: &Note) {
    let bytes = serde_json::to_vec(note).unwrap_or_default();
    let _ = sys::write(sys::standing(REPORT_FD), &bytes);
}

/// The word of the house.
pub const GO: &[u8] = b"go";
/// Lines of a status file that are facts.
pub const STATUS_LINES: &[&str] = &[
    "Uid",
    "Gid",
    "Groups",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
];
const LIMITS_SHOWN: &[(&str, u32)] = &[
    ("core", libc::RLIMIT_CORE),
    ("nofile", libc::RLIMIT_NOFILE),
    ("fsize", libc::RLIMIT_FSIZE),
    ("cpu", libc::RLIMIT_CPU),
    ("stack", libc::RLIMIT_STACK),
    ("memlock", libc::RLIMIT_MEMLOCK),
    ("nproc", libc::RLIMIT_NPROC),
    ("as", libc::RLIMIT_AS),
];
const STACK_BYTES: u64 = 8 * 1_048_576;
const SIGNALS: u64 = 64;
/// The opened program comes first after the report.
const PROGRAM_FD: i32 = REPORT_FD + 1;
const DESCRIPTORS_LOOKED: i32 = 1_024;
const PATH_CHARS: usize = 200;
