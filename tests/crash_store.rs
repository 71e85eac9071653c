//! What was acknowledged survives: processes killed at random, faults at every write and flush, disks that fill up.
//!
//! The writer is this test binary, started again as a child that says on its pipe what was acknowledged to it.

mod small_disk;
mod store_fixture;

use rusqlite::Connection;
use small_disk::SmallDisk;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use store_fixture::{CASA, at, entry, operation};
use verifica::record::{Change, Decision};
use verifica::store::{Denied, Store, StoreError};

const TASKS: u64 = 8;
const KILLS: u32 = 24;
const SCRIPT: u64 = 12;

// ---- the child ---------------------------------------------------------------------------------------------------

#[test]
#[ignore = "the other tests start it as a child process"]
fn child() {
    let path = PathBuf::from(std::env::var_os("STORE_PATH").expect("started by a parent"));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    match std::env::var("STORE_CHILD").as_deref() {
        Ok("load") => runtime.block_on(load(path)),
        Ok("script") => runtime.block_on(script(path)),
        other => panic!("no such part: {other:?}"),
    }
}

/// Writes from many tasks until it is killed or the store is poisoned.
async fn load(path: PathBuf) {
    let store = Store::open(&path, 1).expect("opens");
    let start = store.read(|r| Ok(verifica::record::View::journal_last(r))).await.expect("reads");
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for i in 0.. {
                    if !append_and_say(&store, format!("op-{start}-{task}-{i}"), 16_384).await {
                        return;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a writer");
    }
    end(&store).await;
}

/// Writes a known number of times, whatever becomes of each, and closes.
async fn script(path: PathBuf) {
    let store = match Store::open(&path, 1) {
        Ok(store) => store,
        Err(fault) => return say(&format!("unopened {}", name(&fault))),
    };
    for i in 0..SCRIPT {
        append_and_say(&store, format!("op-{i}"), 600).await;
    }
    end(&store).await;
}

async fn append_and_say(store: &Store, op: String, bytes: usize) -> bool {
    let outcome = append(store, op.clone(), bytes).await;
    match &outcome {
        Ok(n) => say(&format!("ack {n} {op}")),
        Err(fault) => say(&format!("denied {}", name(fault))),
    }
    outcome.is_ok()
}

async fn append(store: &Store, op: String, bytes: usize) -> Result<u64, StoreError> {
    let outcome = store.transact(move |view| {
        let n = view.journal_last() + 1;
        let mut paid = entry(n, &[(CASA, -1), ("ana@mar.example", 1)]);
        let mut doc = paid.doc.into_value();
        doc["refs"]["op"] = op.clone().into();
        paid.doc = doc.into();
        let data = serde_json::Value::from("x".repeat(bytes));
        let changes = vec![
            Change::Journal(paid),
            Change::InsertOperation(operation("ana@mar.example", &op)),
            Change::Event { name: "load", at: at(0), actor: "ana@mar.example".into(), data },
        ];
        Ok(Decision { changes, reply: n })
    });
    match outcome.await {
        Ok(n) => Ok(n),
        Err(Denied::Store(fault)) => Err(fault),
        Err(Denied::Refused(refusal)) => panic!("{refusal}"),
    }
}

/// Says how the store stands, and ends as the daemon would.
async fn end(store: &Store) {
    if store.is_poisoned() {
        let reason = store.poisoned().await;
        let late = append(store, "late".to_owned(), 1).await.expect_err("nothing is acknowledged any more");
        let reads = store.read(|r| r.journal(1, 1)).await.is_ok();
        let closed = store.close().await.expect_err("a poisoned store does not close well");
        say(&format!("poisoned {} reads={reads} close={} because {reason}", name(&late), name(&closed)));
        std::process::exit(74);
    }
    match store.close().await {
        Ok(()) => say("closed"),
        Err(fault) => say(&format!("unclosed {}", name(&fault))),
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush()).expect("the parent listens");
}

fn name(fault: &StoreError) -> &'static str {
    match fault {
        StoreError::Io(_) => "io",
        StoreError::Full => "full",
        StoreError::Poisoned => "poisoned",
        _ => "other",
    }
}

// ---- the parent --------------------------------------------------------------------------------------------------

fn start(part: &str, path: &Path, wrapped_in: &[String]) -> Child {
    let own = std::env::current_exe().expect("this binary").into_os_string();
    let mut words: Vec<std::ffi::OsString> = wrapped_in.iter().map(Into::into).collect();
    words.push(own);
    words.extend(["--ignored", "--exact", "child", "--nocapture"].map(Into::into));
    Command::new(&words[0])
        .args(&words[1..])
        .env("STORE_CHILD", part)
        .env("STORE_PATH", path)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child")
}

#[derive(Debug, Default)]
struct Told {
    acked: BTreeMap<u64, String>,
    lines: Vec<String>,
}

impl Told {
    /// A line without its end was cut by the kill and says nothing.
    fn hear(&mut self, text: &str) {
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            if let Some((n, id)) = line.strip_prefix("ack ").and_then(|rest| rest.split_once(' ')) {
                assert!(
                    self.acked.insert(n.parse().expect("a number"), id.to_owned()).is_none(),
                    "{n} acknowledged twice"
                );
            }
            self.lines.push(line.to_owned());
        }
    }

    fn says(&self, start: &str) -> Option<&String> {
        self.lines.iter().find(|line| line.starts_with(start))
    }
}

/// The file is whole, and holds everything that was acknowledged, in order, with nothing half done.
fn check(path: &Path, acked: &BTreeMap<u64, String>) -> u64 {
    Store::open(path, 1).expect("opens after the fault");
    let conn = Connection::open(path).expect("opens");
    let ask = |sql: &str| -> i64 { conn.query_row(sql, [], |row| row.get(0)).expect("answers") };
    let whole: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("answers");
    assert_eq!(whole, "ok");
    let mut statement =
        conn.prepare("SELECT n, json_extract(doc, '$.refs.op') FROM entry ORDER BY n").expect("prepares");
    let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))).expect("answers");
    let entries: Vec<(u64, String)> =
        rows.map(|row| row.expect("a row")).map(|(n, id)| (n.cast_unsigned(), id)).collect();
    for (i, (n, id)) in entries.iter().enumerate() {
        assert_eq!(*n, i as u64 + 1, "no gap");
        let operation =
            conn.query_row("SELECT count(*) FROM operation WHERE id = ?1", [id], |row| row.get::<_, i64>(0));
        assert_eq!(operation, Ok(1), "entry {n} without its operation");
    }
    for (n, id) in acked {
        assert_eq!(
            entries.get(*n as usize - 1).map(|(_, id)| id),
            Some(id),
            "entry {n} was acknowledged and is not there"
        );
    }
    let last = entries.len() as i64;
    assert_eq!(ask("SELECT count(*) FROM operation"), last);
    assert_eq!(ask("SELECT count(*) FROM event"), last);
    assert_eq!(ask("SELECT count(*) FROM line"), 2 * last);
    assert_eq!(ask("SELECT coalesce(sum(balance), 0) FROM account"), 0);
    assert_eq!(ask("SELECT coalesce(max(balance), 0) FROM account"), last);
    entries.len() as u64
}

#[test]
fn killed_at_random_it_keeps_all_that_it_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("house.db");
    let mut told = Told::default();
    // A fixed sequence of waits: a failure shows itself again.
    let mut wait = 0x9E37_79B9_7F4A_7C15_u64;
    let (mut killed_while_writing, mut killed_while_moving) = (0, 0);
    for kill in 0..KILLS {
        let mut child = start("load", &path, &[]);
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        // Heard all the time, so that the child never waits for its parent to listen.
        let (say, hear) = std::sync::mpsc::channel();
        let listener = std::thread::spawn(move || {
            let mut line = String::new();
            while out.read_line(&mut line).expect("text") > 0 {
                let _ = say.send(std::mem::take(&mut line));
            }
        });
        let mut heard = String::new();
        // Some are killed while they open, the others after the first acknowledgement.
        if kill % 6 != 0 {
            while !heard.contains("ack ") {
                heard += &hear.recv().expect("the child goes on until it is killed");
            }
        }
        wait ^= wait << 13;
        wait ^= wait >> 7;
        wait ^= wait << 17;
        // Some are killed while the log moves into the file, which shows in the file growing.
        let moving = kill % 6 == 3 && grows(&path, Duration::from_secs(30));
        killed_while_moving += u32::from(moving);
        std::thread::sleep(Duration::from_micros(if moving { wait % 3_000 } else { wait % 60_000 }));
        child.kill().expect("killed");
        child.wait().expect("gone");
        listener.join().expect("heard to the end");
        heard.extend(hear.iter());
        let before = told.acked.len();
        told.hear(&heard);
        killed_while_writing += u32::from(told.acked.len() > before);
        let last = check(&path, &told.acked);
        assert!(last >= told.acked.len() as u64);
    }
    assert!(
        killed_while_writing >= 20,
        "only {killed_while_writing} of {KILLS} were killed in the middle of their work"
    );
    assert!(killed_while_moving >= 1, "none was killed while the log moved into the file");
    assert!(told.acked.len() > 100, "{} acknowledged in all", told.acked.len());
}

fn grows(path: &Path, patience: Duration) -> bool {
    let length = || std::fs::metadata(path).map_or(0, |file| file.len());
    let (before, begun) = (length(), Instant::now());
    while begun.elapsed() < patience {
        if length() > before {
            return true;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    false
}

/// Runs the script under strace with one fault; what the child said, and whether it ended by itself with which code.
fn script_with(fault: &str, path: &Path) -> (Told, Option<i32>) {
    let call = fault.split(':').next().unwrap_or_default();
    let words =
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &format!("inject={fault}")];
    let mut child = start("script", path, &words.map(str::to_owned));
    let mut heard = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut heard).expect("text");
    let code = child.wait().expect("gone").code();
    let mut told = Told::default();
    told.hear(&heard);
    (told, code)
}

fn strace_works() -> bool {
    let works = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !works {
        eprintln!("SKIPPED: strace is missing or may not trace here, so no faults were injected into system calls");
    }
    works
}

/// Fault points, from the first call on, in steps, until one is not reached any more.
fn at_each(call_and_fault: &str, step: usize, mut look: impl FnMut(&Told, Option<i32>)) -> usize {
    for (points, nth) in (1..2_000).step_by(step).enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("house.db");
        // Made beforehand, so that few of the calls belong to opening.
        drop(Store::open(&path, 1).expect("opens"));
        let (told, code) = script_with(&format!("{call_and_fault}:when={nth}"), &path);
        look(&told, code);
        check(&path, &told.acked);
        if told.acked.len() as u64 == SCRIPT && told.says("closed").is_some() {
            return points;
        }
    }
    panic!("the fault was still reached at the 2000th call");
}

#[test]
fn a_failed_flush_is_never_followed_by_an_acknowledgement() {
    if !strace_works() {
        return;
    }
    let mut poisoned = 0;
    let points = at_each("fsync:error=EIO", 1, |told, code| {
        let Some(first) = told.lines.iter().position(|line| line.starts_with("denied")) else { return };
        assert_eq!(told.lines[first], "denied io");
        assert!(!told.lines[first..].iter().any(|line| line.starts_with("ack")), "{:?}", told.lines);
        assert!(
            told.lines[first + 1..]
                .iter()
                .filter(|line| line.starts_with("denied"))
                .all(|line| line == "denied poisoned")
        );
        let end = told.says("poisoned").expect("it says why");
        assert!(end.starts_with("poisoned poisoned reads=true close=poisoned"), "{end}");
        assert_eq!(code, Some(74));
        poisoned += 1;
    });
    assert!(poisoned as u64 >= SCRIPT - 4, "{poisoned} of {points} flushes belonged to a commit");
}

#[test]
fn a_failed_write_never_loses_or_doubles_what_was_acknowledged() {
    if !strace_works() {
        return;
    }
    let mut seen = BTreeMap::new();
    for fault in ["pwrite64:error=EIO", "pwrite64:error=ENOSPC", "pwrite64:signal=KILL"] {
        let points = at_each(fault, 9, |told, code| {
            let full = told.lines.iter().filter(|line| *line == "denied full").count();
            if fault.ends_with("ENOSPC") {
                assert!(
                    told.says("poisoned").is_none() && told.says("denied io").is_none(),
                    "a full disk only refuses: {:?}",
                    told.lines
                );
                assert!(full <= 1, "the next one finds room: {:?}", told.lines);
            }
            *seen
                .entry((
                    fault,
                    if full > 0 {
                        "full"
                    } else if code == Some(74) {
                        "poisoned"
                    } else {
                        "other"
                    },
                ))
                .or_insert(0) += 1;
        });
        assert!(points > 5, "{points} points of {fault}");
    }
    assert!(
        seen.contains_key(&("pwrite64:error=ENOSPC", "full")) && seen.contains_key(&("pwrite64:error=EIO", "poisoned")),
        "{seen:?}"
    );
}

#[test]
fn a_file_that_may_not_grow_poisons_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("house.db");
    // Beyond the limit a write fails with EFBIG, which is no full disk: nobody knows what else will fail.
    let limited = ["sh", "-c", "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\""].map(str::to_owned);
    let mut child = start("load", &path, &limited);
    let begun = Instant::now();
    let mut heard = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut heard).expect("text");
    let code = child.wait().expect("gone").code();
    let mut told = Told::default();
    told.hear(&heard);
    assert_eq!(code, Some(74), "after {:?}: {:?}", begun.elapsed(), told.lines.last());
    assert!(told.acked.len() > 10 && told.says("denied io").is_some());
    assert!(
        told.says("poisoned").is_some_and(|end| end.starts_with("poisoned poisoned reads=true")),
        "{:?}",
        told.lines
    );
    check(&path, &told.acked);
}

#[tokio::test]
async fn a_full_disk_refuses_keeps_reading_and_recovers_by_itself() {
    let Some(disk) = SmallDisk::new("6m") else { return };
    let path = disk.path().join("house.db");
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; 2 * 1_048_576]).expect("ballast");
    let store = Store::open(&path, 1).expect("opens");
    let mut acked = BTreeMap::new();
    let mut write = async |refused_at_most: usize| {
        let (mut refused, mut kept) = (0, 0);
        while refused < refused_at_most && kept < 20 {
            let id = format!("op-{}-{refused}-{kept}", acked.len());
            match append(&store, id.clone(), 16_384).await {
                Ok(n) => {
                    acked.insert(n, id);
                    kept = if refused_at_most == 1 { 0 } else { kept + 1 };
                }
                Err(fault) => {
                    assert_eq!(fault, StoreError::Full);
                    refused += 1;
                }
            }
        }
        kept
    };
    write(1).await;
    let before = write(5).await;
    assert!(before < 20, "the disk is full");
    assert!(!store.is_poisoned());
    let first = store.read(|r| r.journal(1, 1)).await.expect("reading goes on");
    assert_eq!(first.len(), 1);
    std::fs::remove_file(&ballast).expect("room again");
    assert_eq!(write(2).await, 20, "writing goes on by itself");
    store.close().await.expect("closed");
    assert!(acked.len() > 50);
    assert_eq!(check(&path, &acked), acked.len() as u64);
}
