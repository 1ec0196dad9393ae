//! Devices through the real `adb`, server and client, with a device daemon of ours (`src/bin/adbd`) whose private root has a toybox
//! userland. Only the transport is real; the device's kernel is this machine's, and there is no Android.

#[path = "phone/adb.rs"]
mod adb;
#[path = "phone/benchmarks.rs"]
mod benchmarks;
#[path = "phone/comparisons.rs"]
mod comparisons;
#[path = "phone/found.rs"]
mod found;
#[path = "phone/known.rs"]
mod known;
#[path = "phone/odd.rs"]
mod odd;
#[path = "phone/perfetto.rs"]
mod perfetto;
#[path = "phone/program.rs"]
mod program;
#[path = "phone/recordings.rs"]
mod recordings;
#[path = "phone/services.rs"]
mod services;

use anyhow::{Context, Result, ensure};
use fathom_tests::phone::{Phone, Shape, possible};
use fathom_tests::{Case, installed, run_suite, wait_until};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, ExitCode, Output};

fn main() -> ExitCode {
    let adb = possible;
    let bpf = || possible().and_then(|()| fathom_tests::root());
    let ssh = fathom_tests::sshd::possible;
    let cases: Vec<Case> = vec![
        ("device_without_adb_server_is_reported", Ok(()), known::no_server),
        ("mute_device_is_given_up_by_first_ctrl_c", Ok(()), known::mute_device_is_given_up_by_first_ctrl_c),
        ("real_adb_authenticates_and_lists_device", adb(), known::real_adb_authenticates_and_lists_device),
        ("unauthorized_device_is_reported", adb(), known::unauthorized_device_is_reported),
        ("facts_and_abilities_come_over_real_adb", adb(), known::facts_and_abilities_come_over_real_adb),
        ("several_devices_are_looked_at_at_once", adb(), known::several_devices_are_looked_at_at_once),
        (
            "hostile_output_of_device_is_bounded_and_escaped",
            adb(),
            known::hostile_output_of_device_is_bounded_and_escaped,
        ),
        ("devices_of_one_model_are_distinguished_or_refused", adb(), known::same_model),
        ("program_is_pushed_once_and_replaced_if_changed", adb(), program::pushed_once),
        ("benchmark_on_device_comes_back_as_archive", adb(), benchmarks::benchmark_on_device_comes_back_as_archive),
        ("two_devices_measure_side_by_side", adb(), benchmarks::two_devices),
        (
            "bytecode_is_copied_along_and_its_mode_is_checked",
            adb(),
            benchmarks::bytecode_is_copied_along_and_its_mode_is_checked,
        ),
        ("ctrl_c_brings_back_what_was_measured", adb(), benchmarks::ctrl_c_brings_back_what_was_measured),
        ("cut_link_keeps_what_was_measured", adb(), benchmarks::cut_link_keeps_what_was_measured),
        (
            "run_resumes_after_cuts_without_loss_or_repeat",
            adb(),
            benchmarks::run_resumes_after_cuts_without_loss_or_repeat,
        ),
        ("run_of_lost_host_is_fetched_later", adb(), benchmarks::run_of_lost_host_is_fetched_later),
        ("reboot_keeps_what_was_measured", adb(), benchmarks::reboot_keeps_what_was_measured),
        ("fixed_performance_mode_is_reset_however_run_ends", adb(), benchmarks::fixed_performance),
        ("host_and_device_are_compared_by_settings", adb(), comparisons::host_and_device_are_compared_by_settings),
        ("insert_of_host_and_device_is_traced_and_compared", bpf(), comparisons::compared_traces),
        (
            "papers_claims_are_judged_of_host_and_device",
            bpf(),
            comparisons::papers_claims_are_judged_of_host_and_device,
        ),
        (
            "long::papers_compare_bytecode_by_modes_that_correspond",
            adb().and_then(|()| installed("javac")),
            comparisons::papers_bytecode,
        ),
        ("directories_that_cannot_be_paired_are_refused", adb(), comparisons::refused_directories),
        ("long::papers_measure_named_directories_on_both", adb(), comparisons::papers_directories),
        ("long::papers_measure_networks_with_device", adb(), comparisons::papers_networks),
        ("papers_cluster_has_nodes_on_devices", adb(), services::papers_cluster_has_nodes_on_devices),
        ("node_on_device_survives_cut_until_stop", adb(), services::node_on_device_survives_cut_until_stop),
        ("net_server_on_device_serves_until_stop", adb(), services::net_server),
        ("full_data_is_reported_and_unchanged", adb(), program::full_data_is_reported_and_unchanged),
        ("slow_link_is_slow_and_works", adb(), program::slow_link_is_slow_and_works),
        ("interrupted_copy_leaves_nothing", adb(), program::interrupted_copy),
        ("cut_copy_leaves_no_program_behind", adb(), program::cut_copy),
        ("shell_without_exit_status_is_refused", adb(), program::old_shell),
        ("user_without_capabilities_gets_alternatives", adb(), recordings::refused_recording),
        ("recording_on_device_is_linked_here", bpf(), recordings::recording_on_device_is_linked_here),
        ("recording_resumes_after_cut_and_counts_all", bpf(), recordings::recording_cut),
        ("ctrl_c_while_device_is_gone_keeps_recording", bpf(), recordings::interrupted_while_gone),
        ("two_devices_record_on_one_clock", bpf(), recordings::one_clock),
        ("node_and_net_server_on_ssh_device_serve_until_stop", ssh(), services::over_ssh),
        ("trace_of_device_perfetto_is_fetched_and_removed", adb(), perfetto::via_perfetto),
        ("perfettos_of_several_devices_record_at_once", adb(), perfetto::perfettos_of_several_devices_record_at_once),
        ("perfetto_that_cannot_record_is_reported", adb(), perfetto::perfetto_refused),
        ("perfetto_ends_with_killed_host_or_cut_link", adb(), perfetto::perfetto_left),
        ("device_is_left_as_found_however_a_verb_ends", adb(), found::device_is_left_as_found_however_a_verb_ends),
        (
            "long::device_is_left_as_found_after_each_verb_and_end",
            bpf(),
            found::device_is_left_as_found_after_each_verb_and_end,
        ),
        ("phone_of_two_names_takes_part_once", adb(), odd::two_names),
        ("devices_take_turns_on_request", adb(), odd::in_turn),
        ("hosts_of_one_process_number_do_not_collide", adb(), odd::same_process_number),
        ("result_without_place_is_refused_before_anything_runs", adb(), odd::refused_early),
        ("full_disk_here_keeps_what_came_and_names_what_runs_on", adb(), odd::full_here),
        ("cut_in_each_phase_leaves_nothing", adb(), odd::cut_phases),
        ("part_of_program_does_not_keep_its_directory", adb(), program::part_left),
        ("run_survives_killed_adb_server", adb(), odd::killed_server),
        (
            "odd_names_reach_device_unchanged_or_are_refused",
            adb(),
            odd::odd_names_reach_device_unchanged_or_are_refused,
        ),
        ("copy_survives_device_clock_that_is_years_off", adb(), odd::copy_survives_device_clock_that_is_years_off),
        ("adb_variables_choose_device_and_server", adb(), odd::adb_variables_choose_device_and_server),
        ("ctrl_c_in_each_phase_leaves_nothing", adb(), odd::interrupted_phases),
        ("forwarded_port_reaches_device", adb(), adb::forwarded_port_reaches_device),
        ("reversed_port_reaches_host_until_it_ends", adb(), adb::reversed_port_reaches_host_until_it_ends),
        ("adb_pushes_and_pulls_same_bytes", adb(), adb::adb_pushes_and_pulls_same_bytes),
        ("long::every_figure_of_all_papers_is_made_with_device", bpf(), comparisons::papers_whole),
    ];
    run_suite(cases)
}

const DAEMON_PATH: &str = env!("CARGO_BIN_EXE_adbd");

fn phone() -> Result<Phone> {
    Phone::start(DAEMON_PATH, &Shape::default())
}

fn told(output: &Output) -> String {
    format!("{}\n{}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn json(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "{}", told(output));
    serde_json::from_slice(&output.stdout).with_context(|| told(output))
}

/// Checks that only the program itself is left there.
fn clean(phone: &Phone) -> Result<()> {
    wait_until("a clean device", || Ok(phone.left()?.is_empty() && phone.processes()?.is_empty()))
        .with_context(|| format!("left: {:?}, running: {:?}", phone.left(), phone.processes()))
}

/// A benchmark of a second.
const QUICK_BENCHMARK: [&str; 8] = ["bench", "run", "sqlite", "--no-wait", "-p", "rows=10", "-p", "op=insert"];

fn bench(phone: &Phone, archive: &Path) -> Command {
    let mut command = phone.fathom();
    command.args(QUICK_BENCHMARK).args(["--quick", "--blocks", "2", "--device", &phone.name(), "-o"]).arg(archive);
    command
}

fn processes(archive: &Path) -> Result<usize> {
    Ok(fathom_tests::rows(archive, "replicates")?.iter().filter(|r| r["exit"] == "0").count())
}
