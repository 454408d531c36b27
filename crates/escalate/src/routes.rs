//! Who hears of what: plain data, checked when a desk is built of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tower_triage_core::{ClassSet, ConfigError, ErrorClass};

/// How soon somebody has to look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// When there is time.
    Low,
    /// Today.
    Medium,
    /// Soon: it goes on failing until somebody acts.
    High,
    /// Now.
    Critical,
}

impl Priority {
    /// A fixed name, fit for a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// Severity text and number of OpenTelemetry's log data model.
    #[must_use]
    pub const fn severity(self) -> (&'static str, u8) {
        match self {
            Self::Low => ("INFO", 9),
            Self::Medium => ("WARN", 13),
            Self::High => ("ERROR", 17),
            Self::Critical => ("FATAL", 21),
        }
    }
}

impl std::fmt::Display for Priority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Receivers and task type: the answer of a [`Routes`] matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Names of receivers, each told once.
    pub to: Vec<String>,
    /// What they are asked to do: `task_blocked`, `human_required`, `infra_failure`.
    pub task_type: String,
}

impl Route {
    /// A route to `to` with `task_type`.
    #[must_use]
    pub fn new<T: Into<String>>(
        to: impl IntoIterator<Item = T>,
        task_type: impl Into<String>,
    ) -> Self {
        Self { to: to.into_iter().map(Into::into).collect(), task_type: task_type.into() }
    }
}

/// What a rule of the matrix asks for. What is left out matches everything; a pattern may hold any
/// number of `*`, each standing for any text: `worker-*`, `*.create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// Pattern of who failed ([`EscalateLayer::from`](crate::EscalateLayer::from)).
    pub from: String,
    /// The failure's class.
    pub classes: ClassSet,
    /// Pattern of the operation.
    pub operation: String,
    /// At least this urgent.
    pub priority: Priority,
}

impl Default for When {
    fn default() -> Self {
        Self {
            from: "*".to_owned(),
            classes: ClassSet::ALL,
            operation: "*".to_owned(),
            priority: Priority::Low,
        }
    }
}

impl When {
    /// Everything.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Who failed matches `pattern`.
    #[must_use]
    pub fn from(pattern: impl Into<String>) -> Self {
        Self { from: pattern.into(), ..Self::default() }
    }

    /// And the class is one of `classes`.
    #[must_use]
    pub fn classes(mut self, classes: impl Into<ClassSet>) -> Self {
        self.classes = classes.into();
        self
    }

    /// And the operation matches `pattern`.
    #[must_use]
    pub fn operation(mut self, pattern: impl Into<String>) -> Self {
        self.operation = pattern.into();
        self
    }

    /// And it is at least this urgent.
    #[must_use]
    pub const fn priority(mut self, at_least: Priority) -> Self {
        self.priority = at_least;
        self
    }

    fn holds(&self, from: &str, class: ErrorClass, operation: &str, priority: Priority) -> bool {
        self.classes.contains(class)
            && priority >= self.priority
            && matches(&self.from, from)
            && matches(&self.operation, operation)
    }
}

/// One row of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What it asks for.
    pub when: When,
    /// Where that goes.
    pub route: Route,
}

/// The escalation matrix: from who failed, class, operation and priority to one or more receivers
/// and a task type. The first rule that holds decides, else the default route, which cannot be
/// absent.
///
/// ```
/// use tower_triage_core::ErrorClass;
/// use tower_triage_escalate::{Priority, Route, Routes, When};
///
/// let routes = Routes::new(Route::new(["human"], "human_required"))
///     .rule(When::from("worker-*"), Route::new(["orchestrator"], "task_blocked"))
///     .rule(When::from("infrastructure"), Route::new(["orchestrator", "human"], "infra_failure"));
///
/// let route = routes.find("worker-7", ErrorClass::Transient, "build", Priority::Medium);
/// assert_eq!(route.task_type, "task_blocked");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routes {
    #[serde(default)]
    rules: Vec<Rule>,
    default: Route,
    #[serde(default)]
    priorities: Priorities,
}

impl Routes {
    /// Everything goes to `default` until a rule says otherwise.
    #[must_use]
    pub fn new(default: Route) -> Self {
        Self { rules: Vec::new(), default, priorities: Priorities::default() }
    }

    /// Adds a rule behind those there are.
    #[must_use]
    pub fn rule(mut self, when: When, route: Route) -> Self {
        self.rules.push(Rule { when, route });
        self
    }

    /// How urgent each class is. Default: [`Priorities::default`].
    #[must_use]
    pub const fn priorities(mut self, priorities: Priorities) -> Self {
        self.priorities = priorities;
        self
    }

    /// How urgent a failure of `class` is.
    #[must_use]
    pub const fn priority(&self, class: ErrorClass) -> Priority {
        self.priorities.0[class.index()]
    }

    /// The route of one failure.
    #[must_use]
    pub fn find(
        &self,
        from: &str,
        class: ErrorClass,
        operation: &str,
        priority: Priority,
    ) -> &Route {
        self.rules
            .iter()
            .find(|rule| rule.when.holds(from, class, operation, priority))
            .map_or(&self.default, |rule| &rule.route)
    }

    /// Every route, the default last.
    fn routes(&self) -> impl Iterator<Item = &Route> {
        self.rules.iter().map(|rule| &rule.route).chain([&self.default])
    }

    /// Checks that every route leads somewhere: `known` says which receivers there are.
    ///
    /// # Errors
    /// A route without receivers or without a task type, a receiver that is named but not there, a
    /// rule that asks for no class.
    pub(crate) fn check(&self, known: impl Fn(&str) -> bool) -> Result<(), ConfigError> {
        for route in self.routes() {
            if route.to.is_empty() {
                let task = &route.task_type;
                return Err(ConfigError::new(
                    "to",
                    format!("[] (task type `{task}`)"),
                    "a route needs at least one receiver",
                ));
            }
            if route.task_type.is_empty() {
                return Err(ConfigError::new(
                    "task_type",
                    "empty",
                    "say what the receivers are asked to do",
                ));
            }
            if let Some(missing) = route.to.iter().find(|name| !known(name)) {
                return Err(ConfigError::new(
                    "to",
                    missing,
                    "no receiver of this name was given to the desk",
                ));
            }
        }
        if self.rules.iter().any(|rule| rule.when.classes.is_empty()) {
            return Err(ConfigError::new("classes", "[]", "a rule for no class never holds"));
        }
        Ok(())
    }
}

/// How urgent each class is.
///
/// | class | default |
/// |---|---|
/// | `Auth`, `Quota`, `Internal` | high: only a person can end it |
/// | `Transient`, `Timeout`, `Unknown` | medium |
/// | the others | low |
///
/// A failure that opened a breaker is at least high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<ErrorClass, Priority>", into = "BTreeMap<ErrorClass, Priority>")]
pub struct Priorities([Priority; 12]);

impl Priorities {
    /// The same with another priority for the given classes.
    #[must_use]
    pub fn set(mut self, classes: impl Into<ClassSet>, priority: Priority) -> Self {
        for class in classes.into().iter() {
            self.0[class.index()] = priority;
        }
        self
    }
}

impl Default for Priorities {
    fn default() -> Self {
        Self(ErrorClass::ALL.map(|class| match class {
            ErrorClass::Auth | ErrorClass::Quota | ErrorClass::Internal => Priority::High,
            ErrorClass::Transient | ErrorClass::Timeout | ErrorClass::Unknown => Priority::Medium,
            ErrorClass::Throttled
            | ErrorClass::Contention
            | ErrorClass::Permanent
            | ErrorClass::Declined
            | ErrorClass::Cancelled
            | ErrorClass::Rejected => Priority::Low,
        }))
    }
}

/// What is not named keeps its default.
impl From<BTreeMap<ErrorClass, Priority>> for Priorities {
    fn from(named: BTreeMap<ErrorClass, Priority>) -> Self {
        named.into_iter().fold(Self::default(), |all, (class, priority)| all.set(class, priority))
    }
}

impl From<Priorities> for BTreeMap<ErrorClass, Priority> {
    fn from(all: Priorities) -> Self {
        ErrorClass::ALL.into_iter().zip(all.0).collect()
    }
}

/// Does `text` match `pattern`, in which each `*` stands for any text, none included?
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let Some((middle, tail)) = rest.rsplit_once('*') else { return text.ends_with(rest) };
    // Between the first and the last star the earliest place is as good as any other.
    for part in middle.split('*') {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("worker-*", "worker-7", true),
            ("worker-*", "worker-", true),
            ("worker-*", "worker", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*b*", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("a**c", "ac", true),
            ("validator", "validator-2", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    /// The obvious definition, exponential and right.
    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|n| by_definition(rest, &text[n..])),
            Some((byte, rest)) => text.first() == Some(byte) && by_definition(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn patterns_follow_the_definition(pattern in "[ab*]{0,7}", text in "[ab]{0,8}") {
            prop_assert_eq!(
                matches(&pattern, &text),
                by_definition(pattern.as_bytes(), text.as_bytes())
            );
        }
    }

    #[test]
    fn no_default_route_no_routes() {
        let error = serde_json::from_str::<Routes>(r#"{"rules":[]}"#).unwrap_err();
        assert!(error.to_string().contains("default"), "{error}");
    }

    /// A misspelt condition would be one that always holds.
    #[test]
    fn a_misspelt_condition_is_an_error() {
        assert!(serde_json::from_str::<When>(r#"{"form":"worker-*"}"#).is_err());
    }

    #[test]
    fn routes_are_plain_data() {
        let json = r#"{"rules":[{"when":{"from":"auditor","priority":"critical"},
            "route":{"to":["orchestrator","human"],"task_type":"critical_vulnerability"}}],
            "default":{"to":["human"],"task_type":"human_required"},"priorities":{"Quota":"critical"}}"#;
        let routes: Routes = serde_json::from_str(json).unwrap();
        let find =
            |priority| &routes.find("auditor", ErrorClass::Internal, "scan", priority).task_type;
        assert_eq!(find(Priority::Critical), "critical_vulnerability");
        assert_eq!(find(Priority::High), "human_required");
        assert_eq!(routes.priority(ErrorClass::Quota), Priority::Critical);
        assert_eq!(routes.priority(ErrorClass::Auth), Priority::High);
        let again = serde_json::to_string(&routes).unwrap();
        assert_eq!(serde_json::from_str::<Routes>(&again).unwrap(), routes);
    }
}
