//! Rows of kind `llm`.

use serde_json::Value;
use tower_triage_llm::{BodyFacts, LlmFacts};
use tower_triage_retry::Facts;

use super::{Judged, facts, header_map, now};

pub(super) fn judge(row: &Value) -> Result<Judged, String> {
    let input = &row["input"];
    // One rule reads every provider's errors; the row must still name one.
    input["provider"].as_str().ok_or("no provider")?;
    let status = input["status"].as_u64().ok_or("no status")?;
    let headers = header_map(&input["headers"])?;
    let answer = LlmFacts {
        status: u16::try_from(status).map_err(|error| error.to_string())?,
        headers: &headers,
        body: BodyFacts::read(input["body_snippet"].as_str().unwrap_or_default().as_bytes()),
        now: now(row)?,
    };
    // A call that is marked is a complete unit of work too.
    let marked = input["idempotent"].as_bool().ok_or("no `idempotent`")?;
    let committed = input["tokens_delivered"].as_u64().unwrap_or(0) > 0;
    let facts = Facts { committed, ..facts(input, marked, marked) };
    Ok(Judged { verdict: answer.verdict(), facts })
}
