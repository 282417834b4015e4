import { render } from 'preact';
import { startLive } from './api/live.ts';
import { App } from './app.tsx';
import { startRouter } from './lib/route.ts';
import { startTheme } from './ui/theme.tsx';

startTheme();
startRouter();
startLive();
render(<App />, document.getElementById('app')!);
