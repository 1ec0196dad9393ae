//! The browser's tests run on synthetic figures. They are meaningful only as long as these have the shape of `analysis`'s
//! real ones: every column and field of the synthetic figures must exist in the real ones.

mod support {
    pub mod synthetic;
}

use analysis::contract;
use analysis::figures;
use serde_json::{Value, json};
use support::synthetic::Synthetic;

/// Returns a real, empty value of a type.
fn empty<T: Default + serde::Serialize>() -> Value {
    serde_json::to_value(T::default()).expect("the figures are JSON")
}

fn names(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// Asserts that `made` has no field that `real` lacks.
fn known(what: &str, made: &Value, real: &Value) {
    for name in names(made) {
        assert!(real.get(name).is_some(), "{what}.{name} is not what analysis writes; it has {:?}", names(real));
    }
}

/// Asserts that both have the same columns.
fn same(what: &str, made: &Value, real: &Value) {
    assert_eq!(names(made), names(real), "columns of {what}");
}

#[test]
fn synthetic_columns_match_figures() {
    let [timeline, scatter, ..] = Synthetic::figures(2);
    same("spans", &timeline["spans"], &empty::<figures::SpanColumns>());
    same("links", &timeline["links"], &empty::<figures::LinkColumns>());
    same("operations", &timeline["operations"], &empty::<figures::OperationColumns>());
    same("slices", &timeline["slices"], &empty::<figures::SliceColumns>());
    same("causes", &timeline["causes"], &empty::<figures::CauseColumns>());
    same("points", &scatter["points"], &empty::<figures::PointColumns>());
    same("left_out", &timeline["left_out"], &empty::<figures::LeftOut>());
    same("left_out of the scatter", &scatter["left_out"], &empty::<figures::LeftOut>());
}

#[test]
fn synthetic_columns_have_equal_length() {
    for [timeline, scatter, ..] in [Synthetic::figures(2), Synthetic::without_marks(2)] {
        for table in [
            &timeline["spans"],
            &timeline["links"],
            &timeline["operations"],
            &timeline["slices"],
            &timeline["causes"],
            &scatter["points"],
        ] {
            let columns = table.as_object().into_iter().flatten();
            let lengths: Vec<usize> = columns.map(|(_, column)| column.as_array().map_or(0, Vec::len)).collect();
            assert!(
                lengths[0] > 0 && lengths.iter().all(|length| *length == lengths[0]),
                "{lengths:?} of {:?}",
                names(table)
            );
        }
    }
}

#[test]
fn synthetic_fields_match_contract() {
    let [_, _, _, summary] = Synthetic::figures(2);
    known("trace", &summary["trace"], &empty::<contract::Trace>());
    known("loss", &summary["loss"], &empty::<contract::Loss>());
    known("links", &summary["links"], &empty::<contract::ByConfidence<u64>>());
    known("device_commands", &summary["device_commands"], &empty::<contract::DeviceCommands>());
    known("by_disk", &summary["device_commands"]["by_disk"]["vda"], &empty::<contract::DiskCommands>());
    for process in summary["device_commands"]["processes"].as_array().into_iter().flatten() {
        known("processes", process, &empty::<contract::ProcessUse>());
    }
    for operation in summary["operations"].as_array().into_iter().flatten() {
        known("operations", operation, &empty::<contract::OperationSummary>());
        known("latency_ns", &operation["latency_ns"], &empty::<contract::Times>());
        known("per_operation", &operation["per_operation"], &empty::<contract::PerOperation>());
        for (layer, time) in operation["layers"].as_object().into_iter().flatten() {
            known(layer, time, &empty::<contract::LayerTime>());
        }
        for (part, real) in [("phases", empty::<contract::Phase>()), ("gaps", empty::<contract::Gap>())] {
            for made in operation[part].as_array().into_iter().flatten() {
                known(part, made, &real);
            }
        }
    }
    assert_ne!(summary["operations"], json!([]));
}
