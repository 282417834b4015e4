import { MOST_SMOOTHING } from '../lib/smoothing.ts';

/** How much a curve is smoothed, from 0 to 0.99. */
export function Smoothing({ value, onChange }: { value: number; onChange: (value: number) => void }) {
  return (
    <label class="inline">
      Smoothing
      <input
        type="range"
        min="0"
        max={MOST_SMOOTHING}
        step="0.01"
        value={value}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
      <output>{value.toFixed(2)}</output>
    </label>
  );
}
