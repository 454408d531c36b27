//! The pictures and tables in `docs/`.

use std::fmt::Write;
use std::time::Duration;

use tower_triage_core::ConfigError;

use super::clients::Setup;
use super::figures::{Figures, Worst, worst};
use super::jitter::{Needed, contend, strategies};
use super::meter::Curves;
use super::model::Model;
use super::run;
use super::svg::{BLUE, Chart, GREEN, GREY, Line, PINK, RED, picture};

/// What the command makes, apart from what it prints.
#[derive(Clone, Debug)]
pub struct Page {
    /// Names of files in `docs/`, with what is in them.
    pub pictures: [(&'static str, String); 2],
    /// Tables in `docs/retry-storms.md`, by the name of the place that they belong in.
    pub tables: [(&'static str, String); 3],
}

impl Page {
    /// Simulates everything.
    ///
    /// # Errors
    /// A setup that does not build.
    pub fn new(seed: u64) -> Result<Self, ConfigError> {
        let model = Model::default();
        let mut runs = Vec::new();
        for setup in [
            Setup::single_attempt(),
            Setup::retries_alone(),
            Setup::budget_alone(),
            Setup::breaker_alone(),
            Setup::patient(),
            Setup::defaults(),
        ] {
            let curves = run(model, &setup, seed)?;
            runs.push((setup.name, curves));
        }
        let small = Model { clients: 100, length: Duration::from_secs(180), ..model };
        let mut longest = Vec::new();
        for setup in [
            Setup::patient(),
            Setup::with("a bucket of 30, 5 s", 30, 5),
            Setup::with("a bucket of 20, 10 s", 20, 10),
            Setup::defaults(),
        ] {
            longest.push((setup.name, worst(small, &setup, seed)?));
        }
        let contention = contention(seed);
        Ok(Self {
            pictures: [
                ("retry-storm.svg", storm_picture(&model, &runs)),
                ("jitter.svg", jitter_picture(&contention)),
            ],
            tables: [
                ("storm", storm_table(&model, &runs)),
                ("outages", outages_table(&longest)),
                ("jitter", jitter_table(&contention)),
            ],
        })
    }

    /// `page` with each table in its place.
    ///
    /// # Errors
    /// Names the place that is missing.
    pub fn fill(&self, page: &str) -> Result<String, String> {
        let mut page = page.to_owned();
        for (name, table) in &self.tables {
            let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
            let place = page
                .find(&begin)
                .map(|at| at + begin.len())
                .and_then(|from| Some(from..from + page[from..].find(&end)?))
                .ok_or_else(|| format!("the page has no place for the table `{name}`"))?;
            page.replace_range(place, table);
        }
        Ok(page)
    }
}

// === The storm ===

fn storm_table(model: &Model, runs: &[(&str, Curves)]) -> String {
    let mut table = "| clients | load, worst 10 s | answered in the outage | back after | answered at the end |\n\
                     |---|---|---|---|---|\n"
        .to_owned();
    for (name, curves) in runs {
        let Figures { load, during, back, at_the_end } = Figures::new(model, curves);
        let (during, at_the_end, back) = (during * 100.0, at_the_end * 100.0, seconds(back));
        row(
            &mut table,
            format_args!("{name} | {load:.2} | {during:.0} % | {back} | {at_the_end:.0} %"),
        );
    }
    table
}

fn outages_table(longest: &[(&str, Worst)]) -> String {
    let mut table =
        "| clients | load, worst 10 s | back after, at worst | outage |\n|---|---|---|---|\n"
            .to_owned();
    for (name, Worst { load, back, outage }) in longest {
        let back = seconds(*back);
        row(&mut table, format_args!("{name} | {load:.2} | {back} | {outage} s"));
    }
    table
}

fn seconds(back: Option<f64>) -> String {
    back.map_or_else(|| "never".to_owned(), |back| format!("{back:.1} s"))
}

fn storm_picture(model: &Model, runs: &[(&str, Curves)]) -> String {
    let length = model.length.as_secs_f64();
    let shown = [
        (Setup::retries_alone().name, RED),
        (Setup::patient().name, BLUE),
        (Setup::defaults().name, GREEN),
    ];
    let lines = |series: fn(&Curves) -> Vec<f64>| {
        let mut lines = vec![Line {
            name: "offered".to_owned(),
            colour: GREY,
            dashed: true,
            points: vec![(0.0, model.offered()), (length, model.offered())],
        }];
        for (name, colour) in shown {
            let curves = runs.iter().filter(|(run, _)| *run == name);
            lines.extend(curves.map(|(name, curves)| Line {
                name: (*name).to_owned(),
                colour,
                dashed: false,
                points: by_second(&series(curves)),
            }));
        }
        lines
    };
    let chart = |title: &str, top, lines| Chart {
        title: title.to_owned(),
        across: ("seconds", length, 20.0),
        top,
        lines,
        shaded: Some((model.begin.as_secs_f64(), model.end.as_secs_f64(), "half the capacity")),
    };
    picture(&[
        chart(
            "Load: attempts that reach the service, per second",
            6.0 * model.offered(),
            lines(|curves| curves.load.by_second()),
        ),
        chart(
            "Goodput: requests answered while their client waits, per second",
            1.5 * model.offered(),
            lines(|curves| curves.goodput.by_second()),
        ),
    ])
}

/// Each second's rate in the middle of the second.
fn by_second(rates: &[f64]) -> Vec<(f64, f64)> {
    rates.iter().enumerate().map(|(second, rate)| (second as f64 + 0.5, *rate)).collect()
}

// === Jitter ===

/// How many clients contend, and how often.
const CROWDS: std::ops::RangeInclusive<u32> = 10..=200;
const RUNS: u32 = 50;

type Contention = Vec<(&'static str, Vec<(u32, Needed)>)>;

fn contention(seed: u64) -> Contention {
    let curve = |(name, backoff)| {
        let crowds = CROWDS.step_by(10);
        (name, crowds.map(|crowd| (crowd, contend(&backoff, crowd, RUNS, seed))).collect())
    };
    strategies().into_iter().map(curve).collect()
}

fn jitter_table(contention: &Contention) -> String {
    let mut table = "| jitter | tries, 50 clients | time | tries, 100 clients | time | tries, 200 clients | time |\n\
                     |---|---|---|---|---|---|---|\n"
        .to_owned();
    for (name, curve) in contention {
        let mut cells = (*name).to_owned();
        for (_, needed) in curve.iter().filter(|(crowd, _)| [50, 100, 200].contains(crowd)) {
            let Needed { tries, millis } = needed;
            let cell = format_args!(" | {tries:.0} | {:.1} s", millis / 1e3);
            cells.write_fmt(cell).expect("a string takes every text");
        }
        row(&mut table, format_args!("{cells}"));
    }
    table
}

fn jitter_picture(contention: &Contention) -> String {
    let chart = |title: &str, top, value: fn(&Needed) -> f64| Chart {
        title: title.to_owned(),
        across: ("clients that contend", f64::from(*CROWDS.end()), 20.0),
        top,
        lines: contention
            .iter()
            .zip([RED, PINK, BLUE, GREEN])
            .map(|((name, curve), colour)| Line {
                name: (*name).to_owned(),
                colour,
                dashed: false,
                points: curve.iter().map(|(n, needed)| (f64::from(*n), value(needed))).collect(),
            })
            .collect(),
        shaded: None,
    };
    picture(&[
        chart("Work: tries of all clients together", 6_000.0, |needed| needed.tries),
        chart(
            "Time until the last client is done, in milliseconds (none leaves the picture)",
            20_000.0,
            |needed| needed.millis,
        ),
    ])
}

fn row(table: &mut String, cells: std::fmt::Arguments<'_>) {
    writeln!(table, "| {cells} |").expect("a string takes every text");
}
