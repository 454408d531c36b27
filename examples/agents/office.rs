//! Where the job is done: the world, the crew in the orchestrator's care, and whoever watches.

use std::error::Error;
use std::sync::Arc;

use tower_triage::escalate::store::{MemoryStore, Store, StoreSink};
use tower_triage::escalate::{Receiver, Route, Routes};
use tower_triage::learn::{LearnPolicy, Learner, Mode, Remedy};
use tower_triage::report::{FailureLog, Wave};
use tower_triage::{Classifier, ConfigError, Desk, ErrorClass};

use crate::crew::{Crew, Human, Model, Rules, Stack, rules};
use crate::world::{Archive, Book, Servers};

pub(crate) struct Office {
    /// The world's book.
    pub(crate) book: Book,
    pub(crate) large: Model,
    pub(crate) small: Model,
    pub(crate) crew: Crew,
    /// The same people with the small model.
    pub(crate) spare: Crew,
    pub(crate) stack: Stack,
    pub(crate) human: Human,
    pub(crate) desk: Desk,
    /// What the desk was told.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) classifier: Classifier<Rules>,
    pub(crate) wave: Wave,
    pub(crate) log: FailureLog,
}

impl Office {
    pub(crate) async fn open() -> Result<Self, Box<dyn Error>> {
        let book = Book::default();
        let servers = Servers::start(&book).await?;
        let (large, small) = (Model::new(servers.large), Model::new(servers.small));
        let archive = Archive::new(book.clone());

        let classifier = Classifier::new(rules());
        let (wave, log, learner) = (Wave::new(), FailureLog::new(), learner()?);
        classifier.observe(wave.clone());
        classifier.observe(log.clone());
        classifier.observe(learner.clone());

        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let desk = desk(&store)?;
        let human = Human::default();
        tokio::spawn(human.clone().answer(store.clone()));

        let crew = Crew::new(&large, &archive, &classifier);
        let spare = Crew::new(&small, &archive, &classifier);
        let crews = (crew.clone(), spare.clone());
        let stack = Stack::new(&classifier, learner, desk.clone(), store.clone(), crews)?;
        Ok(Self {
            book,
            large,
            small,
            crew,
            spare,
            stack,
            human,
            desk,
            store,
            classifier,
            wave,
            log,
        })
    }
}

/// Remembers what helped against failures that no rule knows. Three successes make it sure.
fn learner() -> Result<Learner, ConfigError> {
    let remedies = [
        Remedy::new("nudge", ErrorClass::Transient),
        Remedy::new("fallback/service", ErrorClass::Declined),
    ];
    let policy = LearnPolicy::default().mode(Mode::Aggressive).remedies(remedies);
    Ok(Learner::new(policy.build()?))
}

/// The orchestrator hears of everything; a human is asked where it has no answer.
fn desk(store: &Arc<dyn Store>) -> Result<Desk, ConfigError> {
    let receivers = ["orchestrator", "human"]
        .map(|name| Receiver::new(name).record(StoreSink::new(store.clone())));
    Desk::new(Routes::new(Route::new(["orchestrator"], "task_blocked")), receivers)
}
