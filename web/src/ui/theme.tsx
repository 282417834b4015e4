import { Store, useStore } from '../lib/store.ts';
import { Icon } from './icons.tsx';

type Theme = 'auto' | 'light' | 'dark';

function stored(): Theme {
  try {
    const value = localStorage.getItem('imgd.theme');
    return value === 'light' || value === 'dark' ? value : 'auto';
  } catch {
    return 'auto';
  }
}

const theme = new Store<Theme>(stored());
/** Grows when colours change: what is drawn on a canvas is to be drawn again. */
export const paint = new Store(0);

function apply(): void {
  if (theme.value === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
  paint.set(paint.value + 1);
}

export function startTheme(): void {
  apply();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', apply);
}

/** Colours as a canvas wants them, of custom properties. */
export function colours(names: readonly string[]): string[] {
  const probe = document.createElement('span');
  document.body.append(probe);
  const out = names.map((name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  });
  probe.remove();
  return out;
}

const NEXT: Record<Theme, Theme> = { auto: 'light', light: 'dark', dark: 'auto' };
const ICONS: Record<Theme, string> = { auto: 'auto', light: 'sun', dark: 'moon' };

export function ThemeButton() {
  const value = useStore(theme);
  const label = `Colours: ${value === 'auto' ? 'as the system' : value}`;
  const click = () => {
    theme.set(NEXT[value]);
    try {
      localStorage.setItem('imgd.theme', theme.value);
    } catch {
      // Then it lasts as long as the page.
    }
    apply();
  };
  return (
    <button type="button" class="plain icon" onClick={click} aria-label={label} title={label}>
      <Icon name={ICONS[value]} size={15} />
    </button>
  );
}
