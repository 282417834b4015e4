// Asks for what is drawn first while the rest of the page is read.
import { askFirst } from './api/first_questions.ts';

askFirst();
