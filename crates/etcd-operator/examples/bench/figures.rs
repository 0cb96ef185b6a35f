//! Figures beside their budgets, as a table for people and as JSON for programs.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Seconds,
    Requests,
    Mebibytes,
}

#[derive(Debug, Serialize)]
pub struct Figure {
    name: String,
    unit: Unit,
    median: f64,
    runs: Vec<f64>,
    budget: Option<f64>,
    rule: &'static str,
}

impl Figure {
    /// A time that has no budget: others are measured by it.
    pub fn bare(name: impl Into<String>, runs: Vec<f64>) -> Self {
        Self { name: name.into(), unit: Unit::Seconds, median: median(&runs), runs, budget: None, rule: "" }
    }

    pub fn new(name: impl Into<String>, runs: Vec<f64>, budget: f64, rule: &'static str) -> Self {
        Self::of(name, runs, Unit::Seconds, budget, rule)
    }

    pub fn of(name: impl Into<String>, runs: Vec<f64>, unit: Unit, budget: f64, rule: &'static str) -> Self {
        Self { name: name.into(), unit, median: median(&runs), runs, budget: Some(budget), rule }
    }

    fn met(&self) -> bool {
        self.budget.is_none_or(|budget| self.median <= budget)
    }
}

#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Figures(Vec<Figure>);

impl Figures {
    pub fn add(&mut self, figure: Figure) {
        eprintln!("{}: {:?}", figure.name, figure.runs);
        self.0.push(figure);
    }

    pub fn all_met(&self) -> bool {
        self.0.iter().all(Figure::met)
    }

    pub fn write(&self, path: &Path) -> Outcome {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(fs::write(path, serde_json::to_string_pretty(self)?)?)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<50} {:>12} {:>12}  WHICH IS", "FIGURE (MEDIAN)", "SEEN", "BUDGET")?;
        for figure in &self.0 {
            let value = |value: f64| match figure.unit {
                Unit::Seconds => format!("{value:.1} s"),
                Unit::Requests => format!("{value:.0}"),
                Unit::Mebibytes => format!("{value:.1} MiB"),
            };
            let budget = figure.budget.map(value).unwrap_or_default();
            let missed = if figure.met() { "" } else { "  MISSED" };
            let seen = value(figure.median);
            writeln!(f, "{:<50} {seen:>12} {budget:>12}  {}{missed}", figure.name, figure.rule)?;
        }
        Ok(())
    }
}

/// Of an even number the upper of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
