// The script of index.html: asks for what is drawn first while main.tsx is read.
import { askFirst } from './api/first_questions.ts';

const [, jobs, id = '', tab = ''] = location.pathname.split('/');
if (jobs === 'jobs' && /^\d+$/.test(id)) askFirst(id, tab, new URLSearchParams(location.search));
