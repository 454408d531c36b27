//! `cargo run --release -p tower-triage-tests --bin learning -- [--seeds N]`: what learning is worth
//! (default: 20 seeds).

use std::process::ExitCode;

use tower_triage_learn::Mode;
use tower_triage_tests::learning::{Comparison, Figures, Frequencies, Unlearned, compare, unlearn};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seeds = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Some(20),
        ["--seeds", number] => number.parse().ok().filter(|seeds| *seeds > 0),
        _ => None,
    };
    let Some(seeds) = seeds else {
        eprintln!("usage: learning [--seeds N]");
        return ExitCode::from(2);
    };
    println!("40 kinds of failure, half of them known; {seeds} seeds of 500 calls and 500 more");
    for frequencies in [Frequencies::Even, Frequencies::Zipf] {
        let mut all = Vec::new();
        for seed in 1..=seeds {
            all.push(compare(seed, 500, frequencies, Mode::Balanced).await);
        }
        println!("\n{frequencies:?} frequencies, mode balanced:");
        println!("{:44}{:^45}{:^45}", "", "first 500, learning included", "next 500");
        let row = |name, figures: fn(&Comparison) -> [Figures; 2]| {
            print!("{name:44}");
            for part in 0..2 {
                let (mut ours, mut oracle) = <(Figures, Figures)>::default();
                for one in &all {
                    ours += figures(one)[part];
                    oracle += one.oracle[part];
                }
                let each = |f: fn(&Figures, &Figures) -> f64| {
                    all.iter().map(move |one| f(&figures(one)[part], &one.oracle[part]) * 100.0)
                };
                print!(
                    " {:5.1} ({:5.1})  {:+6.1} ({:+6.1})  {:+6.1} ({:+6.1})",
                    ours.solved_of(&oracle) * 100.0,
                    each(Figures::solved_of).fold(f64::INFINITY, f64::min),
                    ours.wasted_beyond(&oracle) * 100.0,
                    each(Figures::wasted_beyond).fold(f64::NEG_INFINITY, f64::max),
                    ours.wasted_of_all(&oracle) * 100.0,
                    each(Figures::wasted_of_all).fold(f64::NEG_INFINITY, f64::max),
                );
            }
            println!();
        };
        let mut oracle = Figures::default();
        for one in &all {
            oracle += one.oracle[0];
        }
        println!("{:44} {:.1} % of all calls solved", "the oracle", oracle.solved_of_all() * 100.0);
        row("knows half, leaves the rest", |c| c.half);
        row("knows half, tries everything on the rest", |c| c.blind);
        row("the same, and learns from what it sees", |c| c.watching);
        row("knows half, one trial a call, and learns", |c| c.learned);
        for (part, calls) in ["first 500", "next 500"].into_iter().enumerate() {
            let less = |misses: fn(&Figures, &Figures) -> bool| {
                all.iter().filter(|one| misses(&one.learned[part], &one.oracle[part])).count()
            };
            println!(
                "of {seeds} seeds the last one solves less than 90 % in {}, and wastes 10 % more in {} ({calls})",
                less(|ours, oracle| ours.solved_of(oracle) < 0.9),
                less(|ours, oracle| ours.wasted_beyond(oracle) >= 0.1),
            );
        }
    }
    println!(
        "\nin %: solved, of what the oracle solves; attempts wasted beyond the oracle's, of those;"
    );
    println!(
        "the same, of all that the oracle makes. All seeds, and in brackets the worst of them"
    );

    println!("\na remedy that stops working after 100 calls:");
    for mode in [Mode::Cautious, Mode::Balanced, Mode::Aggressive] {
        let mut all = Vec::new();
        for seed in 1..=seeds {
            all.extend(unlearn(seed, 100, mode).await);
        }
        let forgotten: Vec<u32> = all.iter().filter_map(|one: &Unlearned| one.forgotten).collect();
        let solved: Vec<u32> = all.iter().filter_map(|one| one.solved).collect();
        let mean = |all: &[u32]| f64::from(all.iter().sum::<u32>()) / all.len().max(1) as f64;
        let most = |all: &[u32]| all.iter().copied().max().unwrap_or_default();
        println!(
            "{mode:10}: {:3} of {} applied without asking, and no longer after {:.1} calls (at most {}); \
             the new one found by {} after {:.1} calls (at most {})",
            forgotten.len(),
            all.len(),
            mean(&forgotten),
            most(&forgotten),
            solved.len(),
            mean(&solved),
            most(&solved),
        );
    }
    ExitCode::SUCCESS
}
