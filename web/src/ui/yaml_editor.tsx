import { useRef, useState } from 'preact/hooks';
import type { Fault } from '../api/client.ts';

interface Props {
  value: string;
  onChange: (text: string) => void;
  /** Marked at their lines. */
  faults: readonly Fault[];
  field: { current: HTMLTextAreaElement | null };
}

const MOST_BYTES = 1 << 20;

/** A text field with numbered lines, on which a file can be dropped. */
export function YamlEditor({ value, onChange, faults, field }: Props) {
  const gutter = useRef<HTMLDivElement>(null);
  const [over, setOver] = useState(false);
  const bad = new Map(faults.filter((fault) => fault.line > 0).map((fault) => [fault.line, fault.message]));
  const drop = async (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const file = event.dataTransfer?.files[0];
    if (file && file.size <= MOST_BYTES) onChange(await file.text());
    else if (!file) onChange(event.dataTransfer?.getData('text') || value);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: dropping is one way of several
    <div
      class={`editor ${over ? 'over' : ''}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <div class="gutter" ref={gutter} aria-hidden="true">
        {value.split('\n').map((_, i) => (
          <div key={i} class={bad.has(i + 1) ? 'fault' : ''} title={bad.get(i + 1)}>
            {bad.has(i + 1) ? '!' : ''} {i + 1}
          </div>
        ))}
      </div>
      <textarea
        ref={field}
        aria-label="Job file"
        aria-invalid={faults.length > 0}
        value={value}
        spellcheck={false}
        autocapitalize="off"
        onInput={(event) => onChange(event.currentTarget.value)}
        onScroll={(event) => {
          gutter.current!.scrollTop = event.currentTarget.scrollTop;
        }}
      />
    </div>
  );
}
