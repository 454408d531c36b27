//! What the crew is asked for, and what it hands in.

use tower_triage::retry::Checkpoint;
use tower_triage::{Describe, Key, Label, Notes, Operation};

use crate::crew::rules::Reports;
use crate::world::CUE;

/// What is read to gather what is known.
const PAGES: [&str; 3] = ["history", "light", "keepers"];

/// One task. Copies share how far the work came.
#[derive(Clone, Default)]
pub(crate) struct Task {
    /// A verb and a subject: `write Fastnet`.
    pub(crate) name: String,
    /// Which part, of a task that comes in parts.
    pub(crate) part: Option<u64>,
    /// The pages to read.
    pub(crate) pages: Vec<&'static str>,
    /// What was read by earlier attempts.
    pub(crate) read: Vec<String>,
    /// What is read, page by page.
    pub(crate) progress: Checkpoint<Vec<String>>,
    /// Say what was wrong with the last answer.
    pub(crate) complain: bool,
    /// Do without pages.
    pub(crate) by_heart: bool,
    /// A short answer will do.
    pub(crate) brief: bool,
    /// What may be spent.
    pub(crate) budget: u64,
}

/// What comes of a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) text: String,
    /// The layers' notes: how the answer came about.
    pub(crate) notes: Notes,
}

impl Task {
    pub(crate) fn new(name: &str) -> Self {
        let task = Self { name: name.to_owned(), ..Self::default() };
        match task.verb() {
            "gather" => Self { pages: PAGES.to_vec(), ..task },
            _ => task,
        }
    }

    pub(crate) fn verb(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    /// The same task, going on where the last attempt came to an end.
    pub(crate) fn resume(&mut self) -> bool {
        let read = self.progress.last().unwrap_or_default();
        let further = read.len() > self.read.len();
        self.read = read;
        further
    }

    /// One task for each page.
    pub(crate) fn parts(self) -> Vec<Self> {
        let part = |(n, page): (usize, &&'static str)| Self {
            part: Some(n as u64 + 1),
            pages: vec![page],
            progress: Checkpoint::new(),
            ..self.clone()
        };
        self.pages.iter().enumerate().map(part).collect()
    }

    pub(crate) fn prompt(&self, read: &[String]) -> String {
        let mut prompt = format!("{}. ", self.name);
        match self.by_heart {
            true => prompt += CUE.by_heart,
            false => prompt += &read.join(" "),
        }
        if self.complain {
            prompt = format!("{prompt} {}", CUE.complaint);
        }
        let length = if self.brief { "in one sentence" } else { "at length" };
        format!("{prompt} Answer {length}, as JSON.")
    }
}

impl Describe<Task> for Reports {
    fn operation(&self, task: &Task) -> Operation {
        Operation::new(task.verb())
    }

    /// One worker, one circuit.
    fn key(&self, task: &Task) -> Key {
        Key::from_parts(&["worker: ", task.verb()])
    }

    fn request_id(&self, task: &Task) -> Option<Label> {
        Some(match task.part {
            Some(part) => Label::new(&format!("{}, part {part}", task.name)),
            None => Label::new(&task.name),
        })
    }
}
