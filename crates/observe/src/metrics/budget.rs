//! Metrics of the client buffers, by kind.

use budget::KindNumbers;
use serde_json::{Map, Value, json};

use super::openmetrics::Page;

/// Their field in `/stats`.
pub fn json(kinds: &[KindNumbers]) -> Value {
    let member = |numbers: &KindNumbers| {
        let value = json!({
            "bytes": numbers.bytes,
            "limit_bytes": numbers.limit_bytes,
            "refusals_total": numbers.refusals,
        });
        (numbers.kind.name().to_owned(), value)
    };
    Value::Object(kinds.iter().map(member).collect::<Map<String, Value>>())
}

/// Their families of `/metrics`.
pub fn families(page: &mut Page, kinds: &[KindNumbers]) {
    let name = "dovetail_client_buffer_bytes";
    page.family(name, "gauge", "Memory that is booked for clients, by kind");
    for numbers in kinds {
        page.sample(name, &[("kind", numbers.kind.name())], numbers.bytes);
    }
    let name = "dovetail_client_buffer_limit_bytes";
    page.family(name, "gauge", "The most that may be booked of a kind");
    for numbers in kinds {
        page.sample(name, &[("kind", numbers.kind.name())], numbers.limit_bytes);
    }
    let help = "Times that memory of a kind was not there, tries of waiting clients included";
    page.family("dovetail_client_buffer_refusals", "counter", help);
    for numbers in kinds {
        let labels = [("kind", numbers.kind.name())];
        page.sample("dovetail_client_buffer_refusals_total", &labels, numbers.refusals);
    }
}
