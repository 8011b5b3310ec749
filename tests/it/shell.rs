//! What is made from the flags: completions for shells, and manual pages. Each knows every command and every flag.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use ackonce::cli::Cli;
use clap::CommandFactory;

use crate::harness::ackonce;

fn run(arguments: &[&str]) -> Output {
    ackonce().args(arguments).output().expect("it runs")
}

fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Every command, as the words that reach it, with its long flags.
fn commands() -> Vec<(Vec<String>, Vec<String>)> {
    fn add(command: &clap::Command, path: &[String], all: &mut Vec<(Vec<String>, Vec<String>)>) {
        let path = [path, &[command.get_name().to_owned()]].concat();
        let flags = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let flags = flags.filter_map(|argument| Some(argument.get_long()?.to_owned())).collect();
        all.push((path.clone(), flags));
        for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
            add(subcommand, &path, all);
        }
    }
    let mut command = Cli::command();
    command.build();
    let mut all = Vec::new();
    add(&command, &[], &mut all);
    assert!(all.len() >= 20 && all.iter().any(|(_, flags)| flags.len() > 30), "{all:?}");
    all
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Accepted by their shells, where those are here, and complete.
#[test]
fn completions_are_sound_and_know_every_command_and_flag() {
    let folder = tempfile::tempdir().expect("a folder");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        let path = folder.path().join(shell);
        fs::write(&path, &script).expect("written");
        if matches!(shell, "bash" | "zsh" | "fish") && (shell == "bash" || is_there(shell)) {
            let output = Command::new(shell).arg("-n").arg(&path).output().expect("the shell starts");
            assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
        }
        for (path, flags) in commands() {
            for flag in &flags {
                let forms = [format!("--{flag}"), format!("-l {flag}")];
                assert!(forms.iter().any(|form| script.contains(form.as_str())), "{shell}: {path:?} {flag}");
            }
            let name = path.last().expect("a name");
            assert!(script.contains(name.as_str()), "{shell}: {path:?}");
        }
    }
    assert_eq!(run(&["completions", "tcsh"]).status.code(), Some(2));
}

/// In bash, what follows is offered.
#[test]
fn bash_offers_what_follows() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("ackonce");
    fs::write(&script, printed(&["completions", "bash"])).expect("written");
    let offered = |line: &str| {
        let words = format!(
            "source '{}'; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _ackonce ackonce \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo \"${{COMPREPLY[*]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["-c", &words]).output().expect("bash starts");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    assert_eq!(offered("ackonce run --pref"), "--prefetch");
    assert_eq!(offered("ackonce ledger f"), "forget");
    assert_eq!(offered("ackonce completions ba"), "bash");
}

/// A page for each command, which names its flags, refers to its subcommands, and has nothing that groff warns of.
#[test]
fn manual_pages_are_sound_and_know_every_command_and_flag() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    assert_eq!(printed(&["man", "--dir", pages.to_str().expect("UTF-8")]), "");
    let mut expected = Vec::new();
    for (path, flags) in commands() {
        let name = path.join("-");
        let page = fs::read_to_string(pages.join(format!("{name}.1"))).expect("a page");
        // In these pages a hyphen is written so.
        let text = page.replace("\\-", "-");
        for flag in flags {
            assert!(text.contains(&format!("--{flag}")), "{name}: --{flag}");
        }
        if let Some((_, parents)) = path.split_last().filter(|(_, parents)| !parents.is_empty()) {
            let parent = fs::read_to_string(pages.join(format!("{}.1", parents.join("-")))).expect("a page");
            assert!(
                parent.replace("\\-", "-").contains(&format!("{name}(1)")),
                "{name} in its parent's page"
            );
        }
        accepted(&pages.join(format!("{name}.1")));
        expected.push(format!("{name}.1"));
    }
    let mut found: Vec<_> = fs::read_dir(&pages)
        .expect("pages")
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(printed(&["man"]), fs::read_to_string(pages.join("ackonce.1")).expect("a page"));

    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    let output = run(&["man", "--dir", file.join("man1").to_str().expect("UTF-8")]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.starts_with("ackonce: cannot write to ") && said.lines().count() == 1, "{said}");
    assert_eq!(output.status.code(), Some(1));
}

/// As man(1) formats it, with all of groff's warnings.
fn accepted(page: &Path) {
    let mut groff = Command::new("groff");
    groff.args(["-K", "utf8", "-man", "-ww", "-z", "-T", "utf8"]).arg(page);
    let output = groff.output().expect("groff starts: scripts/test installs it");
    assert!(output.status.success() && output.stderr.is_empty(), "{}: {output:?}", page.display());
}
