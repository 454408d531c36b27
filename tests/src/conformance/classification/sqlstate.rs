//! Rows of kind `sqlstate`.

use serde_json::Value;
use tower_triage_postgres::{SqlFacts, WorkUnit};

use super::{Judged, facts};

/// Runs one row's input.
pub(super) fn judge(input: &Value) -> Result<Judged, String> {
    let flag = |name: &str| input[name].as_bool();
    let unit = match input["unit_of_work"].as_str() {
        Some("transaction") => WorkUnit::Transaction,
        Some("statement") => WorkUnit::Statement,
        _ => return Err(format!("unknown unit of work {}", input["unit_of_work"])),
    };
    let sql = SqlFacts {
        unit,
        commit_in_flight: flag("commit_in_flight").unwrap_or(true),
        caller_cancelled: flag("caller_cancelled").unwrap_or(false),
        ..SqlFacts::new(input["sqlstate"].as_str().ok_or("no sqlstate")?)
    };
    let repeatable = flag("idempotent").unwrap_or(false);
    let whole = unit == WorkUnit::Transaction;
    Ok(Judged { verdict: sql.verdict(), facts: facts(input, repeatable, whole) })
}
