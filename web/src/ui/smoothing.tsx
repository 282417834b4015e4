const USUAL = 0.6;
const MOST = 0.99;

/** What the address says of it. */
export function smoothingIn(query: URLSearchParams): number {
  const asked = Number(query.get('smooth') ?? USUAL);
  return Number.isNaN(asked) ? USUAL : Math.min(Math.max(asked, 0), MOST);
}

/** How much a curve is smoothed, from 0 to 0.99. */
export function Smoothing({ value, onChange }: { value: number; onChange: (value: number) => void }) {
  return (
    <label class="inline">
      Smoothing
      <input
        type="range"
        min="0"
        max={MOST}
        step="0.01"
        value={value}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
      <output>{value.toFixed(2)}</output>
    </label>
  );
}
