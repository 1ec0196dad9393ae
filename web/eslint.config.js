// What the type checker knows better (names that are not there, unused ones) is left to it.
import js from '@eslint/js';

export default [
  {
    files: ['src/**/*.js'],
    ...js.configs.recommended,
    rules: {
      ...js.configs.recommended.rules,
      'no-undef': 'off',
      'no-unused-vars': 'off',
      eqeqeq: 'error',
      'no-var': 'error',
      'prefer-const': ['error', { destructuring: 'all' }],
      'no-eval': 'error',
      'no-implied-eval': 'error',
    },
  },
];
