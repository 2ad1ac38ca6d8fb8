// The filter of the index: words that must occur, and conditions such as regs<64, bound=lsu, BM!=32, kernel~gemm.

const CONDITION = /^([A-Za-z_][\w.@-]*)(<=|>=|!=|=|<|>|~|:)(.*)$/;

/**
 * `columns` maps a lower-case name to a function of the row. Returns {test, problems}: `test(row)` says whether a row
 * meets all conditions, `problems` lists words that name no column. `text(row)` is what plain words are looked for in.
 */
function parseQuery(query, columns, text) {
  const tests = [];
  const problems = [];
  for (const word of query.trim().split(/\s+/).filter(Boolean)) {
    const match = CONDITION.exec(word);
    if (!match) {
      const needle = word.toLowerCase();
      tests.push((row) => text(row).includes(needle));
      continue;
    }
    const [, name, operator, wanted] = match;
    const get = columns.get(name.toLowerCase());
    if (!get) {
      problems.push(name);
      continue;
    }
    if (wanted === "") continue; // still being typed
    tests.push(condition(get, operator, wanted));
  }
  return { test: (row) => tests.every((t) => t(row)), problems };
}

function condition(get, operator, wanted) {
  const number = Number(wanted.replace(/%$/, "")) / (wanted.endsWith("%") ? 100 : 1);
  const needle = wanted.toLowerCase();
  return (row) => {
    const value = get(row);
    if (value === null || value === undefined) return operator === "!=";
    if (operator === "~" || operator === ":") return String(value).toLowerCase().includes(needle);
    if (typeof value === "number") {
      if (Number.isNaN(number)) return operator === "!=";
      if (operator === "=") return value === number;
      if (operator === "!=") return value !== number;
      if (operator === "<") return value < number;
      if (operator === ">") return value > number;
      return operator === "<=" ? value <= number : value >= number;
    }
    const same = String(value).toLowerCase() === needle;
    return operator === "!=" ? !same : operator === "=" && same;
  };
}
