//! `ORDER BY 2` where column 2 is an expression of aggregates without an alias: `SELECT kind, sum(bytes) / 1000 FROM spans GROUP BY kind
//! ORDER BY 2`.
//!
//! DataFusion replaces the number by a column of the result, and then demands that this column be in GROUP BY. It accepts the expression
//! itself. So the number is replaced by the expression that it stands for before the statement is planned.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, OrderByKind, Query, SelectItem, SetExpr, Value, Visit as _, VisitMut as _, Visitor, VisitorMut,
};
use std::ops::ControlFlow;

/// Replaces such numbers in a statement and its subqueries; `is_aggregate` knows a function by its name in lower case.
pub fn replace(statement: &mut Statement, is_aggregate: &dyn Fn(&str) -> bool) {
    match statement {
        Statement::Statement(statement) => {
            let _: ControlFlow<()> = statement.visit(&mut Ordinals(is_aggregate));
        }
        Statement::Explain(explain) => replace(&mut explain.statement, is_aggregate),
        _ => {}
    }
}

struct Ordinals<'a>(&'a dyn Fn(&str) -> bool);

impl VisitorMut for Ordinals<'_> {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_ref() else { return ControlFlow::Continue(()) };
        let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) else {
            return ControlFlow::Continue(());
        };
        for one in order {
            let Some(place) = ordinal(&one.expr) else { continue };
            // What a wildcard before it stands for is not known yet.
            let named =
                |item: &&SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
            if let Some(SelectItem::UnnamedExpr(expr)) = select.projection.iter().take_while(named).nth(place)
                && self.has_aggregate(expr)
            {
                one.expr = expr.clone();
            }
        }
        ControlFlow::Continue(())
    }
}

impl Ordinals<'_> {
    fn has_aggregate(&self, expr: &Expr) -> bool {
        expr.visit(&mut Aggregates(self.0)).is_break()
    }
}

struct Aggregates<'a>(&'a dyn Fn(&str) -> bool);

impl Visitor for Aggregates<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(call) if (self.0)(&call.name.to_string().to_lowercase()) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The column, from 0, that a number in ORDER BY stands for.
fn ordinal(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    match &value.value {
        Value::Number(digits, _) => digits.parse::<usize>().ok()?.checked_sub(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::{Engine, Settings};
    use datafusion::arrow::util::display::array_value_to_string;
    use futures_util::TryStreamExt as _;

    /// The first column of the result, in its order.
    fn column(sql: &str) -> Vec<String> {
        let runtime = crate::ask::runtime(1).unwrap();
        let text = sql.to_string();
        let rows = crate::stop::until_stopped(&runtime, move || async move {
            let (_, rows) = Engine::new(Settings::default()).unwrap().run(&text).await?;
            rows.try_collect::<Vec<_>>().await
        });
        let batches = rows.unwrap().unwrap().unwrap_or_else(|error| panic!("{sql}: {error}"));
        let cells = |batch: &datafusion::arrow::array::RecordBatch| -> Vec<String> {
            (0..batch.num_rows()).map(|row| array_value_to_string(batch.column(0), row).unwrap()).collect()
        };
        batches.iter().flat_map(cells).collect()
    }

    #[test]
    fn number_stands_for_an_expression_of_aggregates() {
        let t = "(VALUES ('a', 1), ('b', 9), ('c', 5), ('b', 1)) AS t(g, x)";
        for (sql, expected) in [
            (format!("SELECT g, sum(x) / 2 FROM {t} GROUP BY g ORDER BY 2"), ["a", "c", "b"]),
            (format!("SELECT g, sum(x) / 2 FROM {t} GROUP BY g ORDER BY 2 DESC"), ["b", "c", "a"]),
            (format!("SELECT g, abs(min(x) - 10) FROM {t} GROUP BY g ORDER BY 2, 1"), ["c", "a", "b"]),
            (
                format!("SELECT g, count(*) * 2, x FROM {t} GROUP BY g, x HAVING x < 9 ORDER BY 2, 1 DESC LIMIT 3"),
                ["c", "b", "a"],
            ),
            (format!("SELECT g, sum(x) + 1 AS s FROM {t} GROUP BY g ORDER BY 2"), ["a", "c", "b"]),
            (format!("SELECT g, SUM(x) FROM {t} GROUP BY g ORDER BY 2"), ["a", "c", "b"]),
            (format!("SELECT upper(g), max(x) FROM {t} GROUP BY upper(g) ORDER BY 1"), ["A", "B", "C"]),
            (
                format!("SELECT * FROM (SELECT g, 0 - sum(x) FROM {t} GROUP BY g ORDER BY 2 LIMIT 3) AS u ORDER BY 1"),
                ["a", "b", "c"],
            ),
            (
                format!(
                    "WITH u AS (SELECT g, max(x) % 5 FROM {t} GROUP BY g ORDER BY 2, 1) SELECT g FROM u ORDER BY 1"
                ),
                ["a", "b", "c"],
            ),
        ] {
            assert_eq!(column(&sql), expected, "{sql}");
        }
    }
}
