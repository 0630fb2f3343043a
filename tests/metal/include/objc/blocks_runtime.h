// What GNUstep's Foundation asks for when clang has blocks.
#include <Block.h>
