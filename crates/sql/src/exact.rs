//! Integers that never wrap: `+`, `-`, `*` and `sum` of integers fail where the result has more than 64 bits.
//!
//! DataFusion computes modulo 2^64 (`add_wrapping` in its `BinaryExpr` and `Sum`), so that a sum of many times silently becomes
//! another number; DuckDB and Spark return an error. Operators of integers become calls of a function that checks, under the
//! operator's own name; `sum` adds up in 128 bits. Unsigned integers (`row_number()`) are treated as signed ones, so that 3 - 5 is
//! -2.
//!
//! Uncertain: `sum(DISTINCT …)` over a sliding window still uses the engine's sum.

use anyhow::{Context as _, Result};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use datafusion::arrow::compute::kernels::numeric::{add, mul, sub};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result as Answer, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, Expr, ExprSchemable, GroupsAccumulator,
    ReversedUDAF, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use std::sync::Arc;

/// Makes a session compute with integers exactly, or not at all.
pub fn register(context: &mut SessionContext) -> Result<()> {
    use datafusion::execution::FunctionRegistry as _;
    context.register_expr_planner(Arc::new(Planner)).context("setting up whole numbers")?;
    let total = Arc::new(AggregateUDF::new_from_impl(Total::default()));
    context.register_udaf(total).context("setting up sums")?;
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
}

/// A chain of operators of integers, evaluated from left to right. Flat, since the engine's time grows with the third power of a call's
/// depth.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    /// The left operand of each is the result so far, the right one is the next argument.
    operations: Vec<Operation>,
    signature: Signature,
}

impl Checked {
    fn new(operations: Vec<Operation>) -> Self {
        Self { operations, signature: Signature::variadic(vec![DataType::Int64], Volatility::Immutable) }
    }

    /// Formats the chain as it would be written with operators.
    fn written(&self, mut sides: impl Iterator<Item = String>) -> String {
        let mut text = sides.next().unwrap_or_default();
        for (operation, side) in self.operations.iter().zip(sides) {
            text += match operation {
                Operation::Add => " + ",
                Operation::Subtract => " - ",
                Operation::Multiply => " * ",
            };
            text += &side;
        }
        text
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        "exact"
    }

    fn display_name(&self, args: &[Expr]) -> Answer<String> {
        Ok(self.written(args.iter().map(ToString::to_string)))
    }

    fn schema_name(&self, args: &[Expr]) -> Answer<String> {
        Ok(self.written(args.iter().map(|side| side.schema_name().to_string())))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Answer<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Answer<ColumnarValue> {
        let mut sides = args.args.into_iter();
        let first = sides.next().ok_or_else(|| DataFusionError::Internal("an operator has two sides".into()))?;
        self.operations.iter().zip(sides).try_fold(first, |left, (operation, right)| match operation {
            Operation::Add => apply(&left, &right, add),
            Operation::Subtract => apply(&left, &right, sub),
            Operation::Multiply => apply(&left, &right, mul),
        })
    }
}

#[derive(Debug)]
struct Planner;

impl ExprPlanner for Planner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Answer<PlannerResult<RawBinaryExpr>> {
        let operation = match expr.op {
            BinaryOperator::Plus => Operation::Add,
            BinaryOperator::Minus => Operation::Subtract,
            BinaryOperator::Multiply => Operation::Multiply,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (Some(left), Some(right)) = (integer_type(&expr.left, schema), integer_type(&expr.right, schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        let signed = |side: Expr, kind: DataType| match kind {
            DataType::Int64 => side,
            _ => Expr::Cast(Cast::new(Box::new(side), DataType::Int64)),
        };
        let (mut operations, mut sides) = match expr.left {
            Expr::ScalarFunction(call) => match call.func.inner().as_ref().downcast_ref::<Checked>() {
                Some(chain) => (chain.operations.clone(), call.args),
                None => (Vec::new(), vec![signed(Expr::ScalarFunction(call), left)]),
            },
            other => (Vec::new(), vec![signed(other, left)]),
        };
        operations.push(operation);
        sides.push(signed(expr.right, right));
        let function = Arc::new(ScalarUDF::new_from_impl(Checked::new(operations)));
        Ok(PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(function, sides))))
    }
}

/// The type of an expression, if it is one of integers. Only the last operator of a chain is examined, since a statement may be long.
fn integer_type(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    let kind = match expr {
        Expr::ScalarFunction(call) if call.func.inner().as_ref().is::<Checked>() => DataType::Int64,
        Expr::Literal(value, _) => value.data_type(),
        other => other.get_type(schema).ok()?,
    };
    kind.is_integer().then_some(kind)
}

/// The type in which integers are added up.
const WIDE_TYPE: DataType = DataType::Decimal128(38, 0);

/// The engine's `sum`, but with 128 bits for integers.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Total {
    engine: Sum,
}

fn wide_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), WIDE_TYPE, true))
}

fn of_integers(field: &FieldRef) -> bool {
    field.data_type() == &DataType::Int64
}

fn widened_args<'a>(args: &AccumulatorArgs<'a>) -> AccumulatorArgs<'a> {
    AccumulatorArgs { return_field: wide_field(&args.return_field), ..args.clone() }
}

impl AggregateUDFImpl for Total {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Answer<DataType> {
        self.engine.return_type(types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Answer<Box<dyn Accumulator>> {
        if of_integers(&args.return_field) {
            Ok(Box::new(One(self.engine.accumulator(widened_args(&args))?)))
        } else {
            self.engine.accumulator(args)
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Answer<Vec<FieldRef>> {
        if of_integers(&args.return_field) {
            self.engine.state_fields(StateFieldsArgs { return_field: wide_field(&args.return_field), ..args })
        } else {
            self.engine.state_fields(args)
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.engine.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Answer<Box<dyn GroupsAccumulator>> {
        if of_integers(&args.return_field) {
            Ok(Box::new(Many(self.engine.create_groups_accumulator(widened_args(&args))?)))
        } else {
            self.engine.create_groups_accumulator(args)
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Answer<Box<dyn Accumulator>> {
        if of_integers(&args.return_field) && !args.is_distinct {
            Ok(Box::new(One(self.engine.create_sliding_accumulator(widened_args(&args))?)))
        } else {
            self.engine.create_sliding_accumulator(args)
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.engine.reverse_expr()
    }

    fn order_sensitivity(&self) -> datafusion::logical_expr::utils::AggregateOrderSensitivity {
        self.engine.order_sensitivity()
    }
}

/// Converts integers to 128 bits.
fn widen_values(values: &[ArrayRef]) -> Answer<Vec<ArrayRef>> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    values.iter().map(|one| Ok(cast_with_options(one, &WIDE_TYPE, &strict)?)).collect()
}

/// A total as a 64-bit integer, if it fits.
fn narrow_total(total: i128) -> Answer<i64> {
    i64::try_from(total).map_err(|_| {
        DataFusionError::from(ArrowError::ArithmeticOverflow(format!("Overflow happened on: a sum of {total}")))
    })
}

/// The sum of one group.
#[derive(Debug)]
struct One(Box<dyn Accumulator>);

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Answer<()> {
        self.0.update_batch(&widen_values(values)?)
    }

    fn evaluate(&mut self) -> Answer<ScalarValue> {
        match self.0.evaluate()? {
            ScalarValue::Decimal128(total, ..) => Ok(ScalarValue::Int64(total.map(narrow_total).transpose()?)),
            other => Err(DataFusionError::Internal(format!("a sum of integers is {other:?}"))),
        }
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Answer<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Answer<()> {
        self.0.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Answer<()> {
        self.0.retract_batch(&widen_values(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

/// The sums of many groups.
struct Many(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for Many {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Answer<()> {
        self.0.update_batch(&widen_values(values)?, groups, filter, count)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Answer<ArrayRef> {
        let totals = self.0.evaluate(emit)?;
        let Some(totals) = totals.as_primitive_opt::<Decimal128Type>() else {
            return Err(DataFusionError::Internal(format!("sums of integers are {}", totals.data_type())));
        };
        let narrow: Int64Array =
            totals.iter().map(|total| total.map(narrow_total).transpose()).collect::<Answer<_>>()?;
        Ok(Arc::new(narrow))
    }

    fn state(&mut self, emit: EmitTo) -> Answer<Vec<ArrayRef>> {
        self.0.state(emit)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], count: usize) -> Answer<()> {
        self.0.merge_batch(values, groups, count)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Answer<Vec<ArrayRef>> {
        self.0.convert_to_state(&widen_values(values)?, filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, Settings};
    use futures_util::TryStreamExt;

    /// The first cell of a result as text, or the error.
    fn result_of(sql: &str) -> Result<String, String> {
        let (runtime, text) = (crate::ask::runtime(1).unwrap(), sql.to_string());
        let answered = crate::stop::until_stopped(&runtime, move || async move {
            let (_, rows) = Engine::new(Settings::default()).unwrap().run(&text).await?;
            rows.try_collect::<Vec<_>>().await
        });
        let answered = answered.unwrap().unwrap();
        let batches = answered.map_err(|error| crate::errors::explain(&error, sql))?;
        let first = batches.iter().find(|batch| batch.num_rows() > 0).ok_or("no rows")?;
        Ok(datafusion::arrow::util::display::array_value_to_string(first.column(0), 0).unwrap())
    }

    const LARGEST_VALUES: &str = "(VALUES (9223372036854775807, 'a'), (1, 'a'), (5, 'b')) AS t(x, g)";

    #[test]
    fn integer_that_is_too_large_is_refused() {
        for sql in [
            "SELECT 9223372036854775807 + 1".into(),
            "SELECT -9223372036854775807 - 2".into(),
            "SELECT 4611686018427387904 * 2".into(),
            format!("SELECT max(x) + 9223372036854775807 FROM {LARGEST_VALUES}"),
            format!("SELECT x * 3 FROM {LARGEST_VALUES}"),
            format!("SELECT sum(x) FROM {LARGEST_VALUES}"),
            format!("SELECT sum(x) FROM {LARGEST_VALUES} GROUP BY g ORDER BY g"),
            format!("SELECT sum(DISTINCT x) FROM {LARGEST_VALUES}"),
            format!(
                "SELECT sum(x) OVER (ORDER BY x DESC ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM {LARGEST_VALUES} ORDER BY s"
            ),
        ] {
            let message = result_of(&sql).unwrap_err();
            assert!(message.contains("64 bits"), "{sql}: {message}");
        }
    }

    #[test]
    fn integers_are_computed_exactly() {
        for (sql, expected) in [
            ("SELECT 9223372036854775806 + 1".to_string(), "9223372036854775807"),
            ("SELECT 2 - 3 * 4".into(), "-10"),
            ("SELECT 10 - 3 - 2 + 1 * 2 - (4 - 1)".into(), "4"),
            (format!("SELECT {}", vec!["1"; 900].join(" + ")), "900"),
            (format!("SELECT sum(x) FROM {LARGEST_VALUES} WHERE g = 'b' GROUP BY g"), "5"),
            (format!("SELECT sum(x) FROM {LARGEST_VALUES} WHERE x < 0"), ""),
            (format!("SELECT sum(x) - 1 AS s FROM {LARGEST_VALUES} WHERE x < 9 GROUP BY g HAVING sum(x) + 1 > 2 ORDER BY g DESC"), "4"),
            (format!("SELECT x + 1 FROM {LARGEST_VALUES} WHERE x < 9 GROUP BY x + 1 ORDER BY x + 1 DESC"), "6"),
            // The partial sum is too large, but not the final one.
            ("SELECT sum(x) FROM (VALUES (9223372036854775807), (1), (-2)) AS t(x)".into(), "9223372036854775806"),
            ("SELECT a - b FROM (SELECT row_number() OVER (ORDER BY x) AS a, row_number() OVER (ORDER BY x DESC) AS b FROM (VALUES (1), (2), (3)) AS t(x)) ORDER BY 1".into(), "-2"),
            ("SELECT 1 + 0.5".into(), "1.5"),
            ("SELECT sum(x) FROM (VALUES (0.5), (1.0)) AS t(x)".into(), "1.5"),
            ("SELECT count(*) + 1 FROM (VALUES (1), (2)) AS t(x)".into(), "3"),
            ("SELECT (SELECT max(x) FROM (VALUES (7)) AS t(x)) + 1".into(), "8"),
            ("SELECT a.x FROM (VALUES (1), (2)) AS a(x) JOIN (VALUES (3)) AS b(x) ON a.x + 1 = b.x".into(), "2"),
            ("SELECT DATE '2026-11-26' - DATE '2026-11-25'".into(), "1"),
        ] {
            assert_eq!(result_of(&sql).as_deref(), Ok(expected), "{sql}");
        }
    }

    #[test]
    fn operator_keeps_its_name() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let engine = Engine::new(Settings::default()).unwrap();
        let (schema, _) =
            runtime.block_on(engine.run("SELECT x + 1, sum(x) FROM (VALUES (1)) AS t(x) GROUP BY x")).unwrap();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["t.x + Int64(1)", "sum(t.x)"]);
    }
}
