//! What the crew is asked for, and what it hands in.

use tower_triage::retry::Checkpoint;
use tower_triage::{Describe, Key, Label, Notes, Operation};

use crate::crew::rules::Reports;
use crate::world::CUE;

/// What is read to gather what is known.
const PAGES: [&str; 3] = ["history", "light", "keepers"];

/// One task. Its copies share how far the work came.
#[derive(Clone, Default)]
pub(crate) struct Task {
    /// A verb and a subject: `write Fastnet`.
    pub(crate) name: String,
    /// Which part, of a task that comes in parts.
    pub(crate) part: Option<u64>,
    /// The pages to read.
    pub(crate) pages: Vec<&'static str>,
    /// What has been read of them before.
    pub(crate) read: Vec<String>,
    /// What has been read by now.
    pub(crate) progress: Checkpoint<Vec<String>>,
    /// Say what was wrong with the last answer.
    pub(crate) complain: bool,
    /// Do without pages.
    pub(crate) by_heart: bool,
    /// A short answer will do.
    pub(crate) brief: bool,
    /// The pages have been paid for.
    pub(crate) paid: bool,
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
        let mut task = Self { name: name.to_owned(), ..Self::default() };
        if task.verb() == "gather" {
            task.pages = PAGES.to_vec();
        }
        task
    }

    /// What is done with the subject.
    pub(crate) fn verb(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    /// Who does it.
    pub(crate) fn worker(&self) -> &'static str {
        match self.verb() {
            "gather" => "gatherer",
            "write" => "writer",
            "check" => "checker",
            _ => "planner",
        }
    }

    /// The pages that are yet to be read.
    pub(crate) fn unread(&self) -> &[&'static str] {
        match self.by_heart {
            true => &[],
            false => self.pages.get(self.read.len()..).unwrap_or_default(),
        }
    }

    /// Goes on where an earlier attempt came to an end, if it came anywhere.
    pub(crate) fn resume(&mut self) -> bool {
        self.read = self.progress.last().unwrap_or_default();
        !self.read.is_empty()
    }

    /// A part for each page.
    pub(crate) fn parts(self) -> Vec<Self> {
        let part = |(n, page): (usize, &&'static str)| Self {
            part: Some(n as u64 + 1),
            pages: vec![page],
            read: Vec::new(),
            progress: Checkpoint::new(),
            ..self.clone()
        };
        self.pages.iter().enumerate().map(part).collect()
    }

    pub(crate) fn prompt(&self, read: &[String]) -> String {
        let pages = read.join(" ");
        let known = if self.by_heart { CUE.by_heart } else { &pages };
        let complaint = if self.complain { CUE.complaint } else { "" };
        let length = if self.brief { CUE.brief } else { "" };
        format!("{}. {known} {complaint} {length} Answer as JSON.", self.name)
    }
}

impl Describe<Task> for Reports {
    fn operation(&self, task: &Task) -> Operation {
        Operation::new(task.verb())
    }

    /// One worker, one circuit.
    fn key(&self, task: &Task) -> Key {
        Key::new(task.worker())
    }

    fn request_id(&self, task: &Task) -> Option<Label> {
        Some(match task.part {
            Some(part) => Label::new(&format!("{}, part {part}", task.name)),
            None => Label::new(&task.name),
        })
    }
}
