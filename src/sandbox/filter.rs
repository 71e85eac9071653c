//! Seccomp filters, small: system call numbers are found by halving, so what the kernel works out for every number when a
//! filter is loaded, and for every call that it must ask about, is a few steps and not a walk along a list.
//!
//! What a filter says is a table: for each number what is answered, everything else by default. Calls of a foreign
//! architecture are killed with their process, numbers of the x32 kind get the default. The program's own bytes are what
//! an attestation names, and a test reads them as the kernel would.

use seccompiler::{BpfProgram, sock_filter};
use std::collections::BTreeMap;

/// What a filter answers to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Allow,
    /// The call fails with this errno.
    Errno(u32),
    /// Allowed if the low half of this argument is one of these; otherwise the default.
    AnyOf {
        argument: u8,
        values: Vec<u32>,
    },
    /// Allowed if the low half of this argument has none of these bits; otherwise the default.
    NoneOf {
        argument: u8,
        bits: u32,
    },
}

/// Numbers with their answers.
pub type Table = BTreeMap<u32, Answer>;

/// The program of a table. `otherwise` is [`Answer::Allow`] or an errno.
pub fn program(arch: u32, table: &Table, otherwise: &Answer) -> BpfProgram {
    let mut out = vec![
        load(ARCH),
        jump(JEQ, arch, 1, 0),
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
        jump(JGE, X32, 0, 1),
        answer(code(otherwise)),
    ];
    out.extend(tree(&segments(table, otherwise), otherwise));
    out
}

/// From this number on this is answered, up to the next segment.
type Segment = (u32, Answer);

fn segments(table: &Table, otherwise: &Answer) -> Vec<Segment> {
    let mut out: Vec<Segment> = vec![(0, otherwise.clone())];
    let mut begin = |at: u32, answer: &Answer| match out.last_mut() {
        Some((_, last)) if last == answer => {}
        Some((start, last)) if *start == at => *last = answer.clone(),
        _ => out.push((at, answer.clone())),
    };
    let mut next = 0;
    for (number, answer) in table {
        if *number > next {
            begin(next, otherwise);
        }
        begin(*number, answer);
        next = number + 1;
    }
    begin(next, otherwise);
    // Where the first number has an answer of its own, the default in front of it is of no number.
    let mut tidy: Vec<Segment> = Vec::new();
    for segment in out {
        match tidy.last() {
            Some((_, last)) if *last == segment.1 => {}
            _ => tidy.push(segment),
        }
    }
    tidy
}

fn tree(segments: &[Segment], otherwise: &Answer) -> BpfProgram {
    let (left, right) = segments.split_at(segments.len() / 2);
    let (Some(_), Some((middle, _))) = (left.first(), right.first()) else {
        return segments.first().map_or_else(Vec::new, |(_, answer)| leaf(answer, otherwise));
    };
    let (middle, below, above) = (*middle, tree(left, otherwise), tree(right, otherwise));
    let mut out = match u8::try_from(below.len()) {
        Ok(over) => vec![jump(JGE, middle, over, 0)],
        // Too far for a conditional jump: over a plain one.
        Err(_) => vec![jump(JGE, middle, 0, 1), jump(JA, u32::try_from(below.len()).unwrap_or(u32::MAX), 0, 0)],
    };
    out.extend(below);
    out.extend(above);
    out
}

fn leaf(to: &Answer, otherwise: &Answer) -> BpfProgram {
    match to {
        Answer::AnyOf { argument, values } => {
            let mut out = vec![load(low_half(*argument))];
            let count = values.len();
            for (n, value) in values.iter().enumerate() {
                // Over the rest of the comparisons and the default.
                out.push(jump(JEQ, *value, u8::try_from(count - n).unwrap_or(u8::MAX), 0));
            }
            out.extend([answer(code(otherwise)), answer(code(&Answer::Allow))]);
            out
        }
        Answer::NoneOf { argument, bits } => {
            vec![
                load(low_half(*argument)),
                jump(JSET, *bits, 1, 0),
                answer(code(&Answer::Allow)),
                answer(code(otherwise)),
            ]
        }
        plain => vec![answer(code(plain))],
    }
}

fn code(of: &Answer) -> u32 {
    match of {
        Answer::Allow => libc::SECCOMP_RET_ALLOW,
        Answer::Errno(errno) => libc::SECCOMP_RET_ERRNO | (errno & libc::SECCOMP_RET_DATA),
        // A condition is answered where its argument is read; nothing else has such a code.
        Answer::AnyOf { .. } | Answer::NoneOf { .. } => libc::SECCOMP_RET_KILL_PROCESS,
    }
}

fn load(at: u32) -> sock_filter {
    sock_filter { code: LOAD, jt: 0, jf: 0, k: at }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn answer(k: u32) -> sock_filter {
    sock_filter { code: RETURN, jt: 0, jf: 0, k }
}

/// Of `struct seccomp_data`, on machines that store the low half first; all that are supported do.
fn low_half(argument: u8) -> u32 {
    16 + 8 * u32::from(argument)
}

const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const X32: u32 = 0x4000_0000;
const LOAD: u16 = 0x20;
const RETURN: u16 = 0x06;
const JA: u16 = 0x05;
const JEQ: u16 = 0x15;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u32 = 0xc000_003e;
    const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

    /// As the kernel runs it; the second number is of the steps.
    fn run(program: &[sock_filter], arch: u32, number: u32, arguments: [u64; 6]) -> (u32, usize) {
        let (mut at, mut value, mut steps) = (0usize, 0u32, 0);
        loop {
            let step = &program[at];
            steps += 1;
            at += 1;
            let taken = |yes: bool| usize::from(if yes { step.jt } else { step.jf });
            match step.code {
                LOAD => {
                    value = match step.k {
                        NUMBER => number,
                        ARCH => arch,
                        k => {
                            assert!(k >= 16 && k % 8 == 0, "the high half is not looked at");
                            arguments[(k as usize - 16) / 8] as u32
                        }
                    }
                }
                RETURN => return (step.k, steps),
                JA => at += step.k as usize,
                JEQ => at += taken(value == step.k),
                JGE => at += taken(value >= step.k),
                JSET => at += taken(value & step.k != 0),
                other => panic!("code {other}"),
            }
        }
    }

    fn check(table: &Table, otherwise: &Answer) {
        let program = program(HERE, table, otherwise);
        let plain = |answer: &Answer| code(answer);
        for number in (0..1_200).chain([X32 - 1, X32, X32 + 1, X32 + 59, u32::MAX]) {
            for low in [0u64, 1, 2, 3, 5, 6, 7, 8, 9, 0x5401, 0x5402, 0x1000_0000, 0xffff_ffff] {
                for high in [0u64, 1 << 32, u64::from(u32::MAX) << 32] {
                    let given = high | low;
                    let expected = match table.get(&number) {
                        Some(Answer::AnyOf { values, .. }) if values.contains(&(low as u32)) => ALLOW,
                        Some(Answer::NoneOf { bits, .. }) if low as u32 & bits == 0 => ALLOW,
                        Some(Answer::AnyOf { .. } | Answer::NoneOf { .. }) | None => plain(otherwise),
                        Some(answer) => plain(answer),
                    };
                    assert_eq!(run(&program, HERE, number, [given; 6]).0, expected, "{number} {given:#x}");
                }
            }
            assert_eq!(run(&program, 0x4000_0003, number, [0; 6]).0, libc::SECCOMP_RET_KILL_PROCESS);
        }
    }

    #[test]
    fn a_program_answers_as_its_table_says() {
        let deny = Answer::Errno(libc::EPERM as u32);
        let any = |values: &[u32]| Answer::AnyOf { argument: 1, values: values.to_vec() };
        let none = |bits: u32| Answer::NoneOf { argument: 0, bits };
        for table in [
            Table::new(),
            Table::from([(0, Answer::Allow)]),
            Table::from([(5, Answer::Allow), (6, Answer::Allow), (7, any(&[7])), (8, Answer::Allow)]),
            Table::from([(0, any(&[1, 2, 3, 0x5401])), (1, none(6)), (2, Answer::Errno(9)), (400, Answer::Allow)]),
            (0..900).filter(|n| n % 3 != 0).map(|n| (n, Answer::Allow)).collect(),
            (0..900).map(|n| (n, if n % 2 == 0 { any(&[n, 5]) } else { none(1 << (n % 31)) })).collect(),
        ] {
            check(&table, &deny);
            check(&table, &Answer::Allow);
        }
        assert_eq!(run(&program(HERE, &Table::new(), &deny), HERE, 1, [0; 6]).0, EPERM);
    }

    #[test]
    fn a_number_is_found_in_a_few_steps() {
        let table: Table = (0..450).filter(|n| n % 3 != 0).map(|n| (n, Answer::Allow)).collect();
        let program = program(HERE, &table, &Answer::Errno(1));
        let most = (0..500).map(|number| run(&program, HERE, number, [0; 6]).1).max().expect("steps");
        assert!(most <= 16, "{most} steps");
    }
}
