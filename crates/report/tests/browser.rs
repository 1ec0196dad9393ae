//! The page in a real browser: what a reader clicks, types and sees. Needs Chromium and chromedriver; without them every
//! test here is counted as ignored, and the reason is printed as `SKIP name: reason`.

mod support {
    pub mod many_operations;
    pub mod page;
    pub mod synthetic;
    pub mod webdriver;
}

#[path = "pages/many.rs"]
mod many;
#[path = "pages/narrow.rs"]
mod narrow;
#[path = "pages/selection.rs"]
mod selection;
#[path = "pages/texts.rs"]
mod texts;
#[path = "pages/timeline.rs"]
mod timeline;

use analysis::figures::Limits;
use report::{PageData, page, pages, pages_with};
use serde_json::{Value, json};
use support::many_operations;
use support::page::{ShownPage, of_modules, run};
use support::synthetic::{HOSTILE_STATEMENT, INSERT_STATEMENT, Synthetic};
use support::webdriver::Result;
use verdicts::explain::contract::Explanation;

const INSERT_COUNT: u64 = 60;
const TIMELINE_SELECTOR: &str = "#timeline";
const CANVAS_SELECTOR: &str = "#timeline-canvas";
const ESCAPE_KEY: &str = "\u{e00c}";
const ARROW_DOWN_KEY: &str = "\u{e015}";

fn show(data: &PageData, hash: &str) -> Result<ShownPage> {
    ShownPage::page(&page(data), hash)
}

fn show_inserts(hash: &str) -> Result<ShownPage> {
    let [timeline, scatter, counts, summary] = Synthetic::figures(INSERT_COUNT);
    show(
        &PageData { title: "60 INSERTs <b>&amp;</b> scans", summary, timeline, scatter, counts, ..PageData::default() },
        hash,
    )
}

impl ShownPage {
    fn data(&self, name: &str) -> Result<String> {
        self.browser.attribute(TIMELINE_SELECTOR, &format!("data-{name}"))
    }

    fn number(&self, name: &str) -> Result<f64> {
        Ok(self.data(name)?.parse()?)
    }

    /// Returns the highlighted spans, by their IDs in the archive.
    fn highlighted(&self) -> Result<Vec<u64>> {
        self.data("highlighted")?.split_whitespace().map(|id| Ok(id.parse()?)).collect()
    }

    /// Returns one attribute of every element listed in the panel.
    fn listed(&self, name: &str) -> Result<Vec<String>> {
        let found = self.browser.run(
            "return [...document.querySelectorAll('#panel li[data-span]')].map((li) => li.dataset[arguments[0]]);",
            &[json!(name)],
        )?;
        Ok(found.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
    }
}

/// Returns the rows that a layer shows: top, height, name.
fn rows_of(shown: &ShownPage, layer: &str) -> Result<Vec<(f64, f64, String)>> {
    // Positions are known after the next frame is drawn.
    for _ in 0..100 {
        let drawn = shown.browser.run("const c = document.querySelector('#timeline-canvas'); const f = document.querySelector('#timeline'); \
             return c.dataset.drawn === `${f.dataset.fromNs} ${f.dataset.toNs}` && c.clientWidth === Number(c.dataset.width);", &[])?;
        if drawn == json!(true) {
            break;
        }
    }
    let all: Value = serde_json::from_str(&shown.browser.attribute(CANVAS_SELECTOR, "data-rows")?)?;
    Ok(serde_json::from_value(all[layer].clone())?)
}

/// Waits until an expression of the page is true.
fn wait_for(shown: &ShownPage, condition: &str) -> Result<()> {
    for _ in 0..1000 {
        if shown.browser.run(&format!("return {condition};"), &[])? == json!(true) {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Err(format!("never: {condition}").into())
}

fn main() {
    run(&[
        (
            "page_opens_on_typical_operation_without_console_output",
            selection::page_opens_on_typical_operation_without_console_output,
        ),
        ("operation_clicked_in_list_shows_its_chain", selection::operation_clicked_in_list_shows_its_chain),
        ("chain_without_mark_has_confidence_of_its_links", selection::chain_without_mark_has_confidence_of_its_links),
        (
            "clicked_span_is_selected_and_links_to_its_operation",
            selection::clicked_span_is_selected_and_links_to_its_operation,
        ),
        (
            "window_ranges_from_ten_microseconds_to_whole_run",
            timeline::window_ranges_from_ten_microseconds_to_whole_run,
        ),
        ("pointer_moves_and_scales_window", timeline::pointer_moves_and_scales_window),
        ("text_of_program_is_escaped", texts::text_of_program_is_escaped),
        ("shared_command_names_every_cause_with_share", selection::shared_command_names_every_cause_with_share),
        ("files_of_one_name_are_one_row", texts::files_of_one_name_are_one_row),
        ("losses_are_shown", texts::losses_are_shown),
        ("slow_wait_names_functions", texts::slow_wait_names_functions),
        ("statement_without_device_commands_is_explained", texts::statement_without_device_commands_is_explained),
        (
            "statement_whose_commands_are_left_out_is_not_said_to_have_none",
            texts::statement_whose_commands_are_left_out_is_not_said_to_have_none,
        ),
        ("axis_labels_are_not_cut_off", timeline::axis_labels_are_not_cut_off),
        ("finding_leads_to_spans_that_show_it", selection::finding_leads_to_spans_that_show_it),
        ("emulated_times_are_marked", texts::emulated_times_are_marked),
        ("page_without_finding_says_so", texts::page_without_finding_says_so),
        (
            "other_recording_is_drawn_below_from_same_execution",
            texts::other_recording_is_drawn_below_from_same_execution,
        ),
        ("difference_stands_on_page_of_compared_recordings", texts::difference_stands_on_page_of_compared_recordings),
        ("several_recordings_are_selectable_and_comparable", texts::several_recordings_are_selectable_and_comparable),
        ("narrow_window_needs_no_horizontal_scrolling", narrow::narrow_window_needs_no_horizontal_scrolling),
        ("captions_and_latencies_are_in_sight_on_a_phone", narrow::captions_and_latencies_are_in_sight_on_a_phone),
        ("fingers_move_timeline_sideways_and_page_up", narrow::fingers_move_timeline_sideways_and_page_up),
        ("row_without_spans_in_window_is_hidden", timeline::row_without_spans_in_window_is_hidden),
        ("arrow_keys_without_selection_start_in_window", timeline::arrow_keys_without_selection_start_in_window),
        ("commands_beyond_address_map_look_the_same", many::commands_beyond_address_map_look_the_same),
        ("processes_outside_operations_are_listed_in_part", texts::processes_outside_operations_are_listed_in_part),
        ("burst_makes_lanes_flat_only_where_it_is", timeline::burst_makes_lanes_flat_only_where_it_is),
        ("names_stand_beside_their_rows", timeline::names_stand_beside_their_rows),
        ("packed_columns_are_what_was_recorded", many::packed_columns_are_what_was_recorded),
        ("recording_in_parts_opens_as_in_one", many::recording_in_parts_opens_as_in_one),
        ("search_finds_statements_files_and_spans", many::search_finds_statements_files_and_spans),
        ("latencies_and_device_times_are_shown", many::latencies_and_device_times_are_shown),
        (
            "page_without_room_shows_whole_run_and_opens_any_operation",
            many::page_without_room_shows_whole_run_and_opens_any_operation,
        ),
        ("url_restores_selection_and_view", selection::url_restores_selection_and_view),
        ("page_without_figures_says_so", texts::page_without_figures_says_so),
    ]);
}
