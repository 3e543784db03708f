// Files that become part of the library as they are.
#pragma once

// NOLINTBEGIN(bugprone-macro-parentheses): they are names and strings.
// Defines the constant bytes `symbol` of the file of that path, and a 0 behind them. Once in a
// library, outside of namespaces.
#define UNISONO_EMBED(symbol, path)                                                            \
  asm(".section .rodata." #symbol ", \"a\"\n.balign 64\n.hidden " #symbol "\n.global " #symbol \
      "\n" #symbol ":\n.incbin \"" path "\"\n.byte 0\n.previous\n");                           \
  extern "C" [[gnu::visibility("hidden")]] const unsigned char symbol[]
// NOLINTEND(bugprone-macro-parentheses)
