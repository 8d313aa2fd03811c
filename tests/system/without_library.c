// without_library.c - a program that unet-sockets starts only on request: linked statically, or with the section of a Go program.
#include <stdio.h>

#ifdef GO
__attribute__((section(".note.go.buildid"), used)) static const char note[] = "Go";
#endif

int main(void) {
  puts("runs");
  return 0;
}
