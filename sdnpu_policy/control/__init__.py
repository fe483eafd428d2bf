"""The tick: deadline, ladder of fallbacks, plan, envelope."""
