//! A job under way ends with whatever it is for: its contract, its house, and the house's process.

use super::house::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn long(word: &str) -> Value {
    json!({"verify": [{"type": "exit_0", "argv": ["/bin/sh", "-c", format!("setsid sleep {word} & sleep {word}")]}]})
}

async fn begins(word: &str) {
    let begun = Instant::now();
    while processes_with(word) < 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the job does not begin");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn is_gone(word: &str, why: &str) {
    let begun = Instant::now();
    while processes_with(word) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(8), "{why}: processes of the job live on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_ends_with_its_contract_its_house_and_the_process_of_the_house() {
    if !able() {
        return;
    }
    let others = groups();
    let site = site(archive("exit 0\n"));
    for user in users() {
        let own = if user == User::Own { "3" } else { "4" };
        let mut house = House::new(user, &site);
        house.start();
        let (buyer, seller) = house.people().await;

        // A party settles by hand while the job runs; the house answers all the while.
        let word = format!("30{own}.71");
        let contract = house.delivered(&buyer, &seller, long(&word), b"work").await;
        begins(&word).await;
        let asked = Instant::now();
        assert_eq!(house.http().url(), house.url);
        assert!(buyer.contract(&contract).await.is_ok() && asked.elapsed() < Duration::from_secs(2));
        house.order(&buyer, json!({"op": "release", "contract": contract})).await.expect("released");
        is_gone(&word, "settled by hand").await;

        // The house is killed; its next start sweeps what it left.
        let word = format!("31{own}.72");
        house.delivered(&buyer, &seller, long(&word), b"work").await;
        begins(&word).await;
        house.signal("KILL");
        assert!(!house.ended().success());
        is_gone(&word, "killed").await;
        house.start();
        begins(&word).await;

        // The house ends in order.
        house.signal("TERM");
        assert_eq!(house.ended().code(), Some(0));
        is_gone(&word, "stopped").await;
        let left: Vec<String> = groups().into_iter().filter(|group| !others.contains(group)).collect();
        assert_eq!(left, Vec::<String>::new());
    }
}

/// Control groups of jobs whose house is gone.
fn groups() -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![std::path::PathBuf::from("/sys/fs/cgroup")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let house = name.strip_prefix("verifica-job-").and_then(|rest| rest.split('-').next());
            if house.is_some_and(|pid| !std::path::Path::new("/proc").join(pid).exists()) {
                found.push(entry.path().display().to_string());
            }
            folders.push(entry.path());
        }
    }
    found
}
