//! A disk without room: the real program refuses with 503, goes on reading, and goes on writing when there is room again.

use super::books::audit;
use super::small_disk::SmallDisk;
use super::victim::{Base, Told};

#[test]
fn a_full_disk_is_503_reading_goes_on_and_room_mends_it() {
    let Some(disk) = SmallDisk::new("8m") else { return };
    let data = disk.path().join("data");
    let base = Base::new();
    let mut victim = base.victim_at(&data);
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; 3 * 1_048_576]).expect("ballast");
    victim.start();
    assert!(victim.ready(), "the house comes up");
    let begun = victim.session(1, 1);
    let mut acked = begun.acked.clone();
    let mut refused = 0;
    let mut written = 0;
    while refused < 3 {
        assert!(written < 2_000, "the disk never fills");
        let step = format!("letter-{written}");
        match victim.long_letter(&step) {
            Some((202 | 200, _)) => acked.push((step, 0.0)),
            Some((503, _)) => refused += 1,
            other => panic!("a full disk is answered {other:?}"),
        }
        written += 1;
    }
    // Nothing that only reads is refused.
    for path in ["/health", "/live", "/agents/ana", "/.well-known/nyx5.json"] {
        let answer = victim.get(path);
        assert!(answer.as_ref().is_some_and(|(code, _)| *code == 200), "{path}: {answer:?}");
    }
    std::fs::remove_file(&ballast).expect("room again");
    let mut went_on = 0;
    for n in 0..40 {
        let step = format!("letter-later-{n}");
        match victim.long_letter(&step) {
            Some((202, _)) => {
                acked.push((step, 0.0));
                went_on += 1;
            }
            Some((503, _)) => {}
            other => panic!("with room again it is answered {other:?}"),
        }
    }
    assert!(went_on >= 38, "writing went on by itself {went_on} times of 40");
    assert_eq!(victim.stop(), Some(0), "the house ends in order");
    let told = Told { acked, ..Told::default() };
    assert!(told.acked.len() > 45, "{} acknowledged", told.acked.len());
    audit(&data.join("house.db"), &told, "after the full disk");
}
