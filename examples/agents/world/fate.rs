//! What becomes of each task. Only the world looks here: the crew has to find out.

/// What happens to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing.
    Fine,
    /// The large model says 429, twice.
    RateLimited,
    /// The large model says 503, once.
    Busy,
    /// The large model says 503, whenever it is asked.
    Down,
    /// The large model hangs, once.
    HangsOnce,
    /// The large model hangs, whenever it is asked.
    Hangs,
    /// All pages together are too long for either model; to the second alone the large one says 503,
    /// once.
    TooLong,
    /// The large model refuses the subject.
    Refused,
    /// The large model answers with prose where JSON was asked for, until it is told so.
    Prose,
    /// The large model fails in a way that nobody has heard of.
    Mystery,
    /// The large model wants to see a page that does not exist, again and again.
    Circles,
    /// The connection to the archive breaks at the third page.
    Breaks,
    /// The third page of the archive is corrupt.
    Corrupt,
    /// The archive wants money for the third page.
    Fee,
}

/// The plan that the large model makes of the job, wave by wave, and the fate of each task.
pub(crate) const PLAN: [&[(&str, Fate)]; 4] = [
    &[
        ("gather Bell Rock", Fate::Fine),
        ("gather Eddystone", Fate::TooLong),
        ("gather Fastnet", Fate::Breaks),
        ("gather Skerryvore", Fate::Circles),
        ("gather Cordouan", Fate::Corrupt),
        ("gather Jeddah", Fate::Fee),
        ("gather Lindau", Fate::Mystery),
        ("gather Makapuu", Fate::Mystery),
        ("gather Kermorvan", Fate::Mystery),
    ],
    &[
        ("write Bell Rock", Fate::Hangs),
        ("write Eddystone", Fate::Refused),
        ("write Fastnet", Fate::Prose),
        ("write Skerryvore", Fate::HangsOnce),
        ("write Cordouan", Fate::Busy),
        ("write Jeddah", Fate::RateLimited),
    ],
    &[
        ("check Bell Rock", Fate::Down),
        ("check Eddystone", Fate::Down),
        ("check Fastnet", Fate::Down),
    ],
    &[
        ("check Skerryvore", Fate::Fine),
        ("check Cordouan", Fate::Fine),
        ("check Jeddah", Fate::Fine),
        ("gather Lizard", Fate::Mystery),
    ],
];

impl Fate {
    /// Of the task of this name; nothing happens to what is not in the plan.
    pub(crate) fn of(task: &str) -> Self {
        let mut tasks = PLAN.iter().copied().flatten();
        tasks.find(|(name, _)| *name == task).map_or(Self::Fine, |(_, fate)| *fate)
    }

    /// For the books.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fine => "nothing",
            Self::RateLimited => "429 twice",
            Self::Busy => "503 once",
            Self::Down => "503 always",
            Self::HangsOnce => "hangs once",
            Self::Hangs => "hangs always",
            Self::TooLong => "context too long",
            Self::Refused => "content refused",
            Self::Prose => "prose, not JSON",
            Self::Mystery => "unheard-of error",
            Self::Circles => "goes in circles",
            Self::Breaks => "connection breaks",
            Self::Corrupt => "corrupt page",
            Self::Fee => "wants money",
        }
    }
}
