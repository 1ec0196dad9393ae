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
fn empty_value<T: Default + serde::Serialize>() -> Value {
    serde_json::to_value(T::default()).expect("the figures are JSON")
}

fn field_names(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// Asserts that `made` has no field that `real` lacks.
fn assert_known_fields(what: &str, made: &Value, real: &Value) {
    for name in field_names(made) {
        assert!(real.get(name).is_some(), "{what}.{name} is not what analysis writes; it has {:?}", field_names(real));
    }
}

/// Asserts that both have the same columns.
fn assert_same_columns(what: &str, made: &Value, real: &Value) {
    assert_eq!(field_names(made), field_names(real), "columns of {what}");
}

#[test]
fn synthetic_columns_match_figures() {
    let [timeline, scatter, ..] = Synthetic::figures(2);
    assert_same_columns("spans", &timeline["spans"], &empty_value::<figures::SpanColumns>());
    assert_same_columns("links", &timeline["links"], &empty_value::<figures::LinkColumns>());
    assert_same_columns("operations", &timeline["operations"], &empty_value::<figures::OperationColumns>());
    assert_same_columns("slices", &timeline["slices"], &empty_value::<figures::SliceColumns>());
    assert_same_columns("causes", &timeline["causes"], &empty_value::<figures::CauseColumns>());
    assert_same_columns("points", &scatter["points"], &empty_value::<figures::PointColumns>());
    assert_same_columns("left_out", &timeline["left_out"], &empty_value::<figures::Omissions>());
    assert_same_columns("left_out of the scatter", &scatter["left_out"], &empty_value::<figures::Omissions>());
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
                field_names(table)
            );
        }
    }
}

#[test]
fn synthetic_fields_match_contract() {
    let [_, _, _, summary] = Synthetic::figures(2);
    assert_known_fields("trace", &summary["trace"], &empty_value::<contract::Trace>());
    assert_known_fields("loss", &summary["loss"], &empty_value::<contract::Loss>());
    assert_known_fields("links", &summary["links"], &empty_value::<contract::ByConfidence<u64>>());
    assert_known_fields("device_commands", &summary["device_commands"], &empty_value::<contract::DeviceCommands>());
    assert_known_fields(
        "by_disk",
        &summary["device_commands"]["by_disk"]["vda"],
        &empty_value::<contract::DiskCommands>(),
    );
    for process in summary["device_commands"]["processes"].as_array().into_iter().flatten() {
        assert_known_fields("processes", process, &empty_value::<contract::ProcessUse>());
    }
    for operation in summary["operations"].as_array().into_iter().flatten() {
        assert_known_fields("operations", operation, &empty_value::<contract::OperationSummary>());
        assert_known_fields("latency_ns", &operation["latency_ns"], &empty_value::<contract::Times>());
        assert_known_fields("per_operation", &operation["per_operation"], &empty_value::<contract::PerOperation>());
        for (layer, time) in operation["layers"].as_object().into_iter().flatten() {
            assert_known_fields(layer, time, &empty_value::<contract::LayerTime>());
        }
        for (part, real) in [("phases", empty_value::<contract::Phase>()), ("gaps", empty_value::<contract::Gap>())] {
            for made in operation[part].as_array().into_iter().flatten() {
                assert_known_fields(part, made, &real);
            }
        }
    }
    assert_ne!(summary["operations"], json!([]));
}
