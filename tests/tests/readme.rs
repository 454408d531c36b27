//! What README shows is what runs.

/// The twenty lines are those of the example, to the letter.
#[test]
fn the_twenty_lines_are_the_example() {
    let readme = include_str!("../../README.md");
    let example = include_str!("../../examples/minimal.rs");
    let begin = example.find("async fn poll_orders").expect("the function of the README");
    let end = begin + example[begin..].find("\n}\n").expect("its end") + 3;
    assert!(readme.contains(&example[begin..end]), "README shows another function");
    assert!(
        readme.contains(&example[..begin].lines().skip(2).take(6).collect::<Vec<_>>().join("\n"))
    );
}
