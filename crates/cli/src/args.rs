//! The command line.

use std::time::{Duration, SystemTime};

use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower_triage_core::duration_text::DurationText;
use tower_triage_core::{ClassSet, ErrorClass};
use tower_triage_escalate::Timestamp;
use tower_triage_escalate::store::{Filter, LetterState};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  some letters failed
  2  the command cannot be meant so
  3  the store is missing, out of reach, locked or broken
  4  there is no such letter
  5  the letter is not in a state for it: answered by somebody else, leased, settled";

/// Looks at dead letters, answers them, and drives them again.
#[derive(Debug, Parser)]
#[command(name = "triage", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Where the letters are: a file, or a URL that begins with `postgres://`.
    #[arg(long, global = true, env = "TRIAGE_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Write JSON for programs: one object per line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Who you are, for the letters' histories.
    #[arg(long, global = true, env = "USER", default_value = "somebody")]
    pub(crate) by: String,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List letters, oldest first; without a state those that are open or parked.
    List {
        #[command(flatten)]
        which: Which,
        /// How many at most [default: 50, with --json all].
        #[arg(long)]
        limit: Option<u32>,
        /// Begin behind this number (`seq`): where the last list ended.
        #[arg(long)]
        after: Option<u64>,
    },
    /// Show one letter.
    Show {
        /// Its id, or the beginning of it.
        id: String,
        /// Show the captured request too. It may hold what is nobody else's business.
        #[arg(long)]
        request: bool,
    },
    /// Count letters.
    Stats,
    /// Answer a letter's question. The first answer wins.
    Decide(Decide),
    /// Send captured requests again, each of them once, due or not. A filter without a state means
    /// open letters; what waits for an answer is left alone.
    Redrive(Redrive),
    /// Give letters up.
    Discard(Change),
    /// Open letters again that are parked or settled.
    Reopen(Change),
    /// Show letters as they come, until interrupted.
    Tail {
        #[command(flatten)]
        which: Which,
        /// Show so many of those that are there first.
        #[arg(long, default_value_t = 10)]
        lines: u32,
    },
}

/// Which letters.
#[derive(Clone, Debug, Default, Group)]
pub(crate) struct Which {
    /// In this state; may be given more than once.
    #[arg(long)]
    pub(crate) state: Vec<State>,
    /// Of this class (`Transient`, `Quota`, ..); may be given more than once.
    #[arg(long, value_parser = named::<ErrorClass>)]
    pub(crate) class: Vec<ErrorClass>,
    /// Whose operation matches; `*` stands for anything.
    #[arg(long)]
    pub(crate) operation: Option<String>,
    /// Where who failed matches; `*` stands for anything.
    #[arg(long)]
    pub(crate) from: Option<String>,
    /// Which this receiver was told of.
    #[arg(long)]
    pub(crate) receiver: Option<String>,
    /// With this fingerprint.
    #[arg(long)]
    pub(crate) fingerprint: Option<String>,
    /// Stored before: a moment (`2026-03-01T12:00:00Z`) or an age (`2h`).
    #[arg(long, value_parser = moment)]
    pub(crate) before: Option<Timestamp>,
    /// Stored since: a moment or an age.
    #[arg(long, value_parser = moment)]
    pub(crate) since: Option<Timestamp>,
    /// With a question that a call waits for.
    #[arg(long)]
    pub(crate) asking: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum State {
    Open,
    Parked,
    Delivered,
    Redriven,
    Decided,
    Discarded,
}

#[derive(Debug, Group)]
pub(crate) struct Decide {
    /// The letter's id, or the beginning of it.
    pub(crate) id: String,
    /// What the call is to do.
    pub(crate) decision: Answer,
    /// With `retry-with` and `respond`: JSON. With `choose`: the number of an option, from 1.
    pub(crate) value: Option<String>,
    /// Why, for the letter's history.
    #[arg(long, default_value = "")]
    pub(crate) why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Answer {
    /// Send the same request again.
    Retry,
    /// Send the request again, changed as the value says.
    RetryWith,
    /// Give its caller an answer made of the value.
    Respond,
    /// Give its caller the failure.
    Abort,
    /// Take one of the question's options.
    Choose,
}

#[derive(Debug, Group)]
pub(crate) struct Change {
    /// Ids, or the beginnings of them.
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Why, for the letters' histories.
    #[arg(long, default_value = "")]
    pub(crate) why: String,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Group)]
pub(crate) struct Redrive {
    /// Ids, or the beginnings of them.
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Send to this server; the recorded path is kept. Without it: to the recorded one.
    #[arg(long)]
    pub(crate) to: Option<http::Uri>,
    /// Add a header, `name: value`, in the place of a recorded one. Other users of this machine may
    /// see it: credentials belong into --header-env.
    #[arg(long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// Add a header with the value of an environment variable, `name=VARIABLE`.
    #[arg(long = "header-env", value_name = "NAME=VARIABLE")]
    pub(crate) header_envs: Vec<String>,
    /// How many requests begin in a second, at most.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) rate: f64,
    /// How many are under way at a time.
    #[arg(long, default_value_t = 4)]
    pub(crate) concurrency: usize,
    /// How long one may take.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Show what would be sent, and send nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
}

impl From<State> for LetterState {
    fn from(state: State) -> Self {
        match state {
            State::Open => Self::Open,
            State::Parked => Self::Parked,
            State::Delivered => Self::Delivered,
            State::Redriven => Self::Redriven,
            State::Decided => Self::Decided,
            State::Discarded => Self::Discarded,
        }
    }
}

impl Which {
    /// Does it say anything at all?
    pub(crate) fn is_any(&self) -> bool {
        let Self { state, class, operation, from, receiver, fingerprint, before, since, asking } =
            self;
        let texts = [operation, from, receiver, fingerprint];
        !state.is_empty()
            || !class.is_empty()
            || texts.iter().any(|text| text.is_some())
            || before.is_some()
            || since.is_some()
            || *asking
    }

    /// As a filter; `states` if none are named.
    pub(crate) fn filter(&self, states: &[LetterState]) -> Result<Filter, String> {
        let named: Vec<_> = self.state.iter().copied().map(LetterState::from).collect();
        let mut filter =
            Filter::any().states(if named.is_empty() { states } else { &named }.to_vec());
        if !self.class.is_empty() {
            filter = filter
                .classes(self.class.iter().fold(ClassSet::NONE, |set, class| set.with(*class)));
        }
        if let Some(pattern) = &self.operation {
            filter = filter.operation(pattern);
        }
        if let Some(pattern) = &self.from {
            filter = filter.from(pattern);
        }
        if let Some(name) = &self.receiver {
            filter = filter.receiver(name);
        }
        if let Some(text) = &self.fingerprint {
            filter =
                filter.fingerprint(named_in(text).ok_or("a fingerprint is 16 hexadecimal digits")?);
        }
        if let Some(moment) = self.before {
            filter = filter.before(moment);
        }
        if let Some(moment) = self.since {
            filter = filter.after(moment);
        }
        Ok(if self.asking { filter.asking() } else { filter })
    }
}

/// What serde reads from a text.
fn named_in<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(Value::String(text.to_owned())).ok()
}

/// A class by its name, in any case.
fn named<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let mut name = text.to_lowercase();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let names = ErrorClass::ALL.map(ErrorClass::as_str).join(", ");
    named_in(&name).ok_or_else(|| format!("the classes are {names}"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let DurationText(duration) =
        named_in(text).ok_or("a duration is written like `30s` or `5m`")?;
    Ok(duration)
}

fn moment(text: &str) -> Result<Timestamp, String> {
    match (text.parse(), duration(text)) {
        (Ok(moment), _) => Ok(moment),
        (_, Ok(age)) => Ok(Timestamp::from(SystemTime::now()).minus(age)),
        _ => {
            Err("it is neither a moment like `2026-03-01T12:00:00Z` nor an age like `2h`"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_people_write_is_read() {
        assert_eq!(named::<ErrorClass>("transient"), Ok(ErrorClass::Transient));
        assert_eq!(named::<ErrorClass>("QUOTA"), Ok(ErrorClass::Quota));
        assert!(named::<ErrorClass>("x").unwrap_err().contains("Throttled"));
        assert!(named::<ErrorClass>("é").is_err() && named::<ErrorClass>("").is_err());
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        let exact = moment("2026-03-01T12:00:00Z").unwrap();
        assert_eq!(exact.to_string(), "2026-03-01T12:00:00.000Z");
        assert!(moment("2h").unwrap() > exact);
        assert!(moment("yesterday").is_err());
    }

    #[test]
    fn every_part_of_a_filter_counts() {
        assert!(!Which::default().is_any());
        let open = Which { state: vec![State::Open], ..Which::default() };
        assert!(open.is_any());
        let wrong = Which { fingerprint: Some("x".to_owned()), ..Which::default() };
        assert!(wrong.is_any() && wrong.filter(&[]).is_err());
        let pattern = Which { operation: Some("a*".to_owned()), ..Which::default() };
        assert_eq!(pattern.filter(&[]), Ok(Filter::any().operation("a*")));
    }
}
